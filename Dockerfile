FROM python:3.12-slim

ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONPATH=/opt/runstore

RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/runstore runstore

COPY requirements.lock /opt/runstore/
RUN pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: -r /opt/runstore/requirements.lock

COPY schemas /opt/runstore/schemas
COPY projections /opt/runstore/projections
COPY engine /opt/runstore/engine
COPY service /opt/runstore/service
COPY bin /opt/runstore/bin
RUN python -m compileall -q /opt/runstore

USER runstore
WORKDIR /var/lib/runstore
ENV RUNSTORE_DATA_DIR=/var/lib/runstore/data
RUN mkdir data
VOLUME /var/lib/runstore/data

# The shell's form would not hand SIGTERM on, and the store would be killed in place of closing.
ENTRYPOINT ["python", "-P", "-m", "bin.cli"]
CMD ["serve"]
