"""Settings: precedence, forms, and values that cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bin.cli.declared import PARTITIONS_MAX, SETTINGS
from bin.cli.errors import UsageError
from bin.cli.settings import load_settings
from bin.cli.values import Address
from engine.opening import partitions_default, partitions_max
from engine.pending import QueueLimits


def test_the_defaults(tmp_path: Path) -> None:
    settings = load_settings({}, {}, tmp_path)
    assert settings.data_dir == tmp_path / "runstore-data"
    assert settings.listen == Address("127.0.0.1", 8420)
    assert settings.service_url == "http://127.0.0.1:8420"
    assert (settings.log, settings.partitions, settings.master_key_file) == ("embedded", None, None)
    limits = QueueLimits()
    assert settings.queue_commands_max == limits.queue_commands_max
    assert settings.queue_bytes_max == limits.queue_bytes_max


def test_what_is_said_of_partitions_is_what_the_engine_does() -> None:
    assert partitions_max == PARTITIONS_MAX
    (partitions,) = (setting for setting in SETTINGS if setting.name == "partitions")
    assert f"({partitions_default} unless told)" in partitions.meaning


def test_flags_come_before_variables_and_those_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "runstore.toml").write_text('partitions = 3\nlisten = "127.0.0.1:3"\ndata_dir = "c"\n')
    variables = {"RUNSTORE_PARTITIONS": "2", "RUNSTORE_LISTEN": "127.0.0.1:2"}
    settings = load_settings({"partitions": "1", "listen": None}, variables, tmp_path)
    assert (settings.partitions, settings.listen.port, settings.data_dir) == (1, 2, tmp_path / "c")


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    (tmp_path / "runstore.toml").write_text("partitions = 3\n")
    assert load_settings({}, {"RUNSTORE_PARTITIONS": ""}, tmp_path).partitions == 3


def test_only_the_value_that_counts_is_checked(tmp_path: Path) -> None:
    assert load_settings({"partitions": "1"}, {"RUNSTORE_PARTITIONS": "x"}, tmp_path).partitions == 1


def test_another_file_by_flag_or_variable_and_its_paths_start_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "runstore.toml").write_text("partitions = 3\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "mine.toml").write_text('data_dir = "data"\nmaster_key_file = "/keys/k"\n')
    for settings in (
        load_settings({}, {}, tmp_path, Path("etc/mine.toml")),
        load_settings({}, {"RUNSTORE_CONFIG": "etc/mine.toml"}, tmp_path),
    ):
        assert settings.partitions is None
        assert settings.data_dir == tmp_path / "etc" / "data"
        assert settings.master_key_file == Path("/keys/k")


def test_every_setting_in_every_form(tmp_path: Path) -> None:
    texts = {
        "data_dir": ("d", tmp_path / "d"),
        "listen": ("[::1]:65535", Address("::1", 65535)),
        "log": ("embedded", "embedded"),
        "partitions": ("1024", 1024),
        "master_key_file": ("k", tmp_path / "k"),
        "url": ("https://[::1]:1/under/", "https://[::1]:1/under"),
        "log_level": ("debug", "debug"),
        "queue_commands_max": ("1", 1),
        "queue_bytes_max": ("1", 1),
        "kafka.bootstrap_servers": ("a:1, [::1]:9092", "a:1,[::1]:9092"),
        "kafka.topic_prefix": ("team.a-b_c", "team.a-b_c"),
        "kafka.replication_factor": ("3", 3),
        "kafka.min_insync_replicas": ("2", 2),
        "kafka.strict_reads": ("true", True),
        "kafka.security.protocol": ("SASL_SSL", "SASL_SSL"),
        "kafka.security.mechanism": ("SCRAM-SHA-512", "SCRAM-SHA-512"),
        "kafka.security.username": ("store", "store"),
        "kafka.security.password": ("pass word", "pass word"),
        "kafka.security.password_file": ("p", tmp_path / "p"),
        "kafka.security.ca_file": ("ca.pem", tmp_path / "ca.pem"),
        "kafka.security.certificate_file": ("c.pem", tmp_path / "c.pem"),
        "kafka.security.key_file": ("k.pem", tmp_path / "k.pem"),
        "kafka.security.check_hostname": ("false", False),
    }
    assert set(texts) == {setting.name for setting in SETTINGS}
    for setting in SETTINGS:
        text, value = texts[setting.name]
        (tmp_path / "runstore.toml").write_text(
            f"{setting.name} = {text if setting.kind in {'number', 'switch'} else f'{text!r}'}\n"
        )
        by_file = load_settings({}, {}, tmp_path)
        (tmp_path / "runstore.toml").unlink()
        by_variable = load_settings({}, {setting.variable: text}, tmp_path)
        found = by_variable.kafka if setting.name.startswith("kafka.") else {}
        assert (found[setting.name].value if found else getattr(by_variable, setting.name)) == value
        assert by_file == by_variable != load_settings({}, {}, tmp_path) or setting.name == "log"
        if setting.flag:
            log = {"log": "kafka"} if found else {}
            by_flag = load_settings(log | {setting.name: text}, {}, tmp_path)
            assert by_flag == replace(by_variable, log=by_flag.log)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("listen", "8420"),
        ("listen", "127.0.0.1"),
        ("listen", "127.0.0.1:"),
        ("listen", "127.0.0.1:65536"),
        ("listen", "::1:8420"),
        ("listen", "http://127.0.0.1:8420"),
        ("log", "Kafka"),
        ("log", ""),
        ("partitions", "0"),
        ("partitions", "1025"),
        ("partitions", "-1"),
        ("partitions", "1_0"),
        ("partitions", "٣"),
        ("data_dir", ""),
        ("url", "127.0.0.1:8420"),
        ("url", "ftp://x"),
        ("url", "http://x:99999"),
        ("url", "http://x/?q"),
        ("log_level", "INFO"),
        ("queue_bytes_max", "1e9"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_source(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(UsageError) as flagged:
        load_settings({name: text}, {}, tmp_path)
    assert flagged.value.message.startswith("--" + name.replace("_", "-"))
    assert "\n" not in flagged.value.message
    if text:
        with pytest.raises(UsageError, match=f"^RUNSTORE_{name.upper()}"):
            load_settings({}, {f"RUNSTORE_{name.upper()}": text}, tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("partition = 8", "there is no setting 'partition'; known are data_dir, "),
        ('partitions = "8"', "partitions must be a whole number"),
        ("partitions = true", "partitions must be a whole number"),
        ("partitions = 0", "partitions must be a whole number from 1 to 1024, not '0'"),
        ("listen = 8420", "listen must be a text in quotes"),
        ('log = "kafak"', "log must be embedded or kafka, not 'kafak'"),
        ('kafka = "broker:9092"', "kafka must be a table, begun with [kafka]"),
        ('[kafka]\nsecurity = "SSL"', "kafka.security must be a table, begun with [kafka.security]"),
        ('[kafka]\nservers = "x"', "there is no setting 'kafka.servers'; known are kafka.bootstrap_servers, "),
        ('[kafka.security]\nuser = "x"', "no setting 'kafka.security.user'; known are kafka.security.ca_file, "),
        ('"kafka.topic_prefix" = "x"', "there is no setting 'kafka.topic_prefix'; known are data_dir, kafka, listen"),
        ("[kafka]\nbootstrap_servers = 9092", "kafka.bootstrap_servers must be a text in quotes"),
        ('[kafka]\nbootstrap_servers = "x"', "kafka.bootstrap_servers must be HOST:PORT"),
        ('[kafka]\nstrict_reads = "true"', "kafka.strict_reads must be true or false, without quotes"),
        ("[kafka]\nstrict_reads = 1", "kafka.strict_reads must be true or false, without quotes"),
        ("[kafka]\nreplication_factor = true", "kafka.replication_factor must be a whole number"),
        ("partitions = ", "is not TOML"),
        ("\xff", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "runstore.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as refused:
        load_settings({}, {}, tmp_path)
    assert str(tmp_path / "runstore.toml") in refused.value.message
    assert told in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("text", ["partitions = true", "[kafka]\nreplication_factor = true"])
def test_true_is_no_number(tmp_path: Path, text: str) -> None:
    (tmp_path / "runstore.toml").write_text(text)
    with pytest.raises(UsageError, match=r"must be a whole number$"):
        load_settings({}, {}, tmp_path)


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no settings file"):
        load_settings({}, {}, tmp_path, Path("nowhere.toml"))


def test_port_0_names_no_service(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--url"):
        _ = load_settings({"listen": "127.0.0.1:0"}, {}, tmp_path).service_url
    assert load_settings({"listen": "127.0.0.1:0", "url": "http://x"}, {}, tmp_path).service_url == "http://x"
    assert load_settings({"listen": "[::1]:1"}, {}, tmp_path).service_url == "http://[::1]:1"
