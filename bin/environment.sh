# Sourced by the scripts beside it, which set `root`.

# usable_python FILE: whether it is a Python that Runstore can run on. A version manager's shim may exist and fail.
usable_python() {
    "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11) or sys.implementation.name != "cpython")' \
        </dev/null >/dev/null 2>&1
}

# find_python: sets `python` to the first usable one, by name and then by place in the PATH.
find_python() {
    for name in python3.13 python3.12 python3.11 python3 python; do
        old_ifs=$IFS
        IFS=:
        set -f
        for folder in $PATH; do
            python=${folder:-.}/$name
            if [ -x "$python" ] && usable_python "$python"; then
                set +f
                IFS=$old_ifs
                return
            fi
        done
        set +f
        IFS=$old_ifs
    done
    echo "runstore: no Python 3.11 or newer was found on the PATH; install one (Debian and Ubuntu:" \
        "apt-get install python3 python3-venv) and try again" >&2
    exit 2
}

# prepare_environment FOLDER LOCK: makes the environment there hold what the lock says, unless it does;
# sets `environment`. Costs one comparison of two small files when there is nothing to do.
prepare_environment() {
    environment=$1
    unset PYTHONHOME
    if [ -x "$environment/bin/python" ] && cmp -s "$2" "$environment/installed.lock"; then
        return
    fi
    find_python
    "$python" -I "$root/bin/bootstrap.py" "$environment" "$2" || exit
}

# run_module MODULE ARGUMENTS: becomes a module of the tree in the environment of its developers.
run_module() {
    prepare_environment "${RUNSTORE_VENV_DEV:-$root/.venv-dev}" "$root/requirements-dev.lock"
    export PYTHONDONTWRITEBYTECODE=1
    cd -- "$root"
    PYTHONPATH=$root exec "$environment/bin/python" -P -m "$@"
}
