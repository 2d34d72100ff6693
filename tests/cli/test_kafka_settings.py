"""The settings of a log on Kafka as a whole: what must be there, what means nothing, and what stays secret."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bin.cli.damage import damaged_log
from bin.cli.declared import SETTINGS
from bin.cli.errors import UsageError
from bin.cli.kafka import kafka_settings, password_file_bytes_max
from bin.cli.opening import explained, store_settings
from bin.cli.program import on_folder
from bin.cli.settings import load_settings
from bin.cli.values import topic_chars_max
from engine.data_folder import FolderInUse, OpeningError
from engine.kafka.settings import KafkaSecurity, KafkaSettings, security_protocols
from engine.keys import MasterKeyError
from tests.cli.processes import ROOT

SERVERS = "broker:9092"
PASSWORD = "correct horse"  # noqa: S105 - guards nothing
IN_FILE = {"security_password_file": "password"}

Kafka = Callable[..., KafkaSettings]


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    """What a store on Kafka is opened with, of settings by their names below `kafka.`, given as variables."""

    def open_with(**given: str) -> KafkaSettings:
        texts = {"bootstrap_servers": SERVERS} | given
        variables = {f"RUNSTORE_KAFKA_{name.upper()}": text for name, text in texts.items()}
        found = kafka_settings(load_settings({"log": "kafka"}, variables, tmp_path))
        assert found is not None
        return found

    return open_with


def refusal(function: Callable[..., Any], *arguments: Any, **given: Any) -> str:
    """The line and the hint of a refusal, which never holds the password."""
    with pytest.raises(UsageError) as refused:
        function(*arguments, **given)
    told = f"{refused.value.message}\n{refused.value.hint}"
    assert "\n" not in refused.value.message
    assert PASSWORD not in told
    return told


def sasl(**given: str) -> Mapping[str, str]:
    return {"security_protocol": "SASL_PLAINTEXT", "security_username": "store"} | given


def test_an_embedded_log_needs_none_of_it_and_does_not_mind_them_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "runstore.toml").write_text('[kafka.security]\nprotocol = "PLAINTEXT"\nca_file = "nowhere"\n')
    assert kafka_settings(load_settings({}, {"RUNSTORE_KAFKA_STRICT_READS": "true"}, tmp_path)) is None


def test_the_defaults_are_the_engines(kafka: Kafka) -> None:
    assert kafka() == KafkaSettings(SERVERS)
    engine = {"topic_prefix": KafkaSettings(SERVERS).topic_prefix, "strict_reads": KafkaSettings(SERVERS).strict_reads}
    security = KafkaSecurity()
    engine |= {f"security.{name}": getattr(security, name) for name in ("protocol", "mechanism", "check_hostname")}
    told = {
        setting.name.removeprefix("kafka."): setting.read(setting.default, Path())
        for setting in SETTINGS
        if setting.name.startswith("kafka.") and setting.default
    }
    assert told == engine


def test_the_file_has_tables(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "etc" / "my.toml").write_text(
        'log = "kafka"\n[kafka]\nbootstrap_servers = "a:1,b:2"\ntopic_prefix = "team"\nreplication_factor = 3\n'
        'min_insync_replicas = 2\nstrict_reads = true\n[kafka.security]\nprotocol = "SASL_SSL"\n'
        'mechanism = "SCRAM-SHA-256"\nusername = "store"\npassword_file = "password"\ncheck_hostname = false\n'
    )
    settings = load_settings({}, {}, tmp_path, Path("etc/my.toml"))
    security = KafkaSecurity("SASL_SSL", "SCRAM-SHA-256", "store", PASSWORD, check_hostname=False)
    expected = KafkaSettings("a:1,b:2", "team", security, 3, 2, strict_reads=True)
    assert kafka_settings(settings) == expected
    assert store_settings(settings, create=True).kafka == expected


def test_flags_come_before_variables_and_those_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "runstore.toml").write_text(
        '[kafka]\nbootstrap_servers = "file:1"\ntopic_prefix = "file"\nreplication_factor = 1\n'
    )
    variables = {"RUNSTORE_KAFKA_BOOTSTRAP_SERVERS": "variable:1", "RUNSTORE_KAFKA_TOPIC_PREFIX": "variable"}
    flags = {"log": "kafka", "kafka.bootstrap_servers": "flag:1"}
    assert kafka_settings(load_settings(flags, variables, tmp_path)) == KafkaSettings(
        "flag:1", "variable", replication_factor=1
    )


@pytest.mark.parametrize("servers", ["broker", "broker:0", "broker:65536", "a:1,", ",", "::1:9092", "kafka://a:1"])
def test_brokers_are_hosts_with_ports(kafka: Kafka, servers: str) -> None:
    told = refusal(kafka, bootstrap_servers=servers)
    assert told.startswith("RUNSTORE_KAFKA_BOOTSTRAP_SERVERS must be HOST:PORT, several with commas")


def test_the_longest_topic_is_one_that_kafka_takes(kafka: Kafka) -> None:
    longest = "p" * (topic_chars_max - len(".keys"))
    assert len(kafka(topic_prefix=longest).keys_topic) == topic_chars_max
    for prefix in (longest + "p", "a/b", "ü", " "):
        assert "RUNSTORE_KAFKA_TOPIC_PREFIX must be 1 to 244 of" in refusal(kafka, topic_prefix=prefix)


def test_more_copies_than_there_are_cannot_be_waited_for(kafka: Kafka) -> None:
    assert kafka(replication_factor="2", min_insync_replicas="2").min_insync_replicas == 2
    told = refusal(kafka, replication_factor="2", min_insync_replicas="3")
    assert "RUNSTORE_KAFKA_MIN_INSYNC_REPLICAS is 3, more than the 2 that RUNSTORE_KAFKA_REPLICATION_FACTOR" in told


@pytest.mark.parametrize(
    ("protocol", "name", "text", "other"),
    [
        ("PLAINTEXT", "mechanism", "PLAIN", "begins with SASL"),
        ("PLAINTEXT", "username", "store", "begins with SASL"),
        ("SSL", "password", PASSWORD, "begins with SASL"),
        ("SSL", "password_file", "p", "begins with SASL"),
        ("PLAINTEXT", "ca_file", "ca", "ends in SSL"),
        ("SASL_PLAINTEXT", "certificate_file", "c", "ends in SSL"),
        ("SASL_PLAINTEXT", "key_file", "k", "ends in SSL"),
        ("SASL_PLAINTEXT", "check_hostname", "true", "ends in SSL"),
    ],
)
def test_what_means_nothing_under_the_protocol_is_refused(
    kafka: Kafka, protocol: str, name: str, text: str, other: str
) -> None:
    told = refusal(kafka, **{"security_protocol": protocol, f"security_{name}": text})
    assert told.startswith(f"RUNSTORE_KAFKA_SECURITY_{name.upper()} means nothing with the protocol {protocol}\n")
    assert told.endswith(f"choose one that {other} as kafka.security.protocol")


def test_sasl_needs_a_user_and_a_password(kafka: Kafka) -> None:
    assert "needs a user" in refusal(kafka, security_protocol="SASL_PLAINTEXT", security_password=PASSWORD)
    assert "needs a password" in refusal(kafka, **sasl())
    assert kafka(**sasl(security_password=PASSWORD)).security.password == PASSWORD


def test_the_password_is_nowhere_to_be_seen(kafka: Kafka, tmp_path: Path) -> None:
    variables = {"RUNSTORE_KAFKA_SECURITY_PASSWORD": PASSWORD}
    assert PASSWORD not in repr(load_settings({}, variables, tmp_path))
    assert PASSWORD not in repr(kafka(**sasl(security_password=PASSWORD)))
    assert "PASSWORD must be text without" in refusal(kafka, **sasl(security_password=f"{PASSWORD}\n"))
    for text in (f"'{PASSWORD}\t'", f"['{PASSWORD}']", f"'{PASSWORD}", f"'{PASSWORD}' x"):
        (tmp_path / "runstore.toml").write_text(f"[kafka.security]\npassword = {text}\n")
        assert "runstore.toml" in refusal(load_settings, {}, {}, tmp_path)


def test_a_password_in_a_file(kafka: Kafka, tmp_path: Path) -> None:
    path = tmp_path / "password"
    for text, password in ((b"p", "p"), (b" p \n", " p "), (b"p\r\n", "p"), (b"\xc3\xbc\n", "ü")):
        path.write_bytes(text)
        assert kafka(**sasl(**IN_FILE)).security.password == password
    for text, told in (
        (b"", "the password in"),
        (b"\n", "and not be empty"),
        (PASSWORD.encode() + b"\nmore", "without line breaks"),
        (PASSWORD.encode() + b"\xff", "it is not UTF-8"),
        (b"p" * (password_file_bytes_max + 1), "it is longer than 4096 bytes"),
    ):
        path.write_bytes(text)
        refused = refusal(kafka, **sasl(**IN_FILE))
        assert told in refused
        assert str(path) in refused
    path.unlink()
    told = refusal(kafka, **sasl(**IN_FILE))
    assert told == f"RUNSTORE_KAFKA_SECURITY_PASSWORD_FILE: {path} cannot be read: No such file or directory\n"


def test_of_two_passwords_the_one_given_nearer_counts(tmp_path: Path) -> None:
    (tmp_path / "runstore.toml").write_text("[kafka.security]\npassword = 'filed'\n")
    (tmp_path / "flagged").write_text("flagged")
    variables = {f"RUNSTORE_KAFKA_{name.upper()}": text for name, text in sasl(bootstrap_servers=SERVERS).items()}

    def password(flags: Mapping[str, str], **more: str) -> str | None:
        found = kafka_settings(load_settings({"log": "kafka", **flags}, variables | more, tmp_path))
        return found.security.password if found else None

    flag, variable = {"kafka.security.password_file": "flagged"}, {"RUNSTORE_KAFKA_SECURITY_PASSWORD": "variable"}
    assert password({}) == "filed"
    assert password(flag) == "flagged"
    assert password({}, **variable) == "variable"
    assert password(flag, **variable) == "flagged"
    both = {"RUNSTORE_KAFKA_SECURITY_PASSWORD": "x", "RUNSTORE_KAFKA_SECURITY_PASSWORD_FILE": "flagged"}
    assert "both tell the password" in refusal(password, {}, **both)


def test_who_only_asks_a_service_needs_no_password(tmp_path: Path) -> None:
    (tmp_path / "runstore.toml").write_text(
        "log = 'kafka'\n[kafka.security]\nprotocol = 'SASL_SSL'\npassword_file = '/nowhere/at/all'\n"
    )
    assert load_settings({}, {}, tmp_path).service_url == "http://127.0.0.1:8420"


def test_tls_files_that_cannot_be_used_are_told_by_their_setting(kafka: Kafka, tmp_path: Path) -> None:
    write_pair(tmp_path, "one")
    write_pair(tmp_path, "two", passphrase=b"secret")
    (tmp_path / "both.pem").write_bytes((tmp_path / "one.pem").read_bytes() + (tmp_path / "one.key").read_bytes())
    (tmp_path / "text").write_text("no certificate\n")
    ssl = {"security_protocol": "SSL"}

    def tls(**files: str) -> str:
        return refusal(kafka, **ssl, **{f"security_{name}": file for name, file in files.items()})

    given = {"ca_file": "one.pem", "certificate_file": "one.pem", "key_file": "one.key"}
    found = kafka(**ssl, **{f"security_{name}": file for name, file in given.items()})
    pem, key = tmp_path / "one.pem", tmp_path / "one.key"
    assert found.security == KafkaSecurity("SSL", ca_file=pem, certificate_file=pem, key_file=key)
    assert kafka(**ssl, security_certificate_file="both.pem").security.key_file is None

    name, path = "RUNSTORE_KAFKA_SECURITY_", str(tmp_path)
    assert tls(ca_file="gone") == f"{name}CA_FILE: {path}/gone cannot be read: No such file or directory\n"
    assert tls(ca_file="text") == f"{name}CA_FILE: {path}/text cannot be used: no certificate or crl found\n"
    assert tls(ca_file=".").startswith(f"{name}CA_FILE: {path} cannot be read: ")
    assert tls(certificate_file="one.pem", key_file="gone").startswith(f"{name}KEY_FILE: {path}/gone cannot be read")
    both = f"{name}CERTIFICATE_FILE: {path}/one.pem with {name}KEY_FILE: {path}/two.key cannot be used: "
    assert tls(certificate_file="one.pem", key_file="two.key").startswith(both)
    assert tls(certificate_file="one.pem").startswith(f"{name}CERTIFICATE_FILE: {path}/one.pem cannot be used: ")
    assert tls(key_file="one.key") == f"{name}KEY_FILE means nothing without a certificate_file\n"


def test_an_encrypted_key_is_refused_and_no_terminal_is_asked(
    kafka: Kafka, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_pair(tmp_path, "pair", passphrase=b"secret")
    told = refusal(kafka, security_protocol="SSL", security_certificate_file="pair.pem", security_key_file="pair.key")
    assert "it is not what TLS needs in PEM" in told
    assert capfd.readouterr() == ("", "")


def test_a_command_to_paste_finds_the_same_log(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[kafka.security]\npassword = 'x'\n")
    flags = {
        "log": "kafka",
        "kafka.bootstrap_servers": "a:1",
        "kafka.strict_reads": "true",
        "kafka.security.ca_file": "ca.pem",
    }
    variables = {"RUNSTORE_KAFKA_TOPIC_PREFIX": "p"}
    said = f"--log kafka --kafka-bootstrap-servers a:1 --kafka-strict-reads true --kafka-security-ca-file {tmp_path}"
    assert on_folder(load_settings(flags, variables, tmp_path), "verify") == f"runstore verify {said}/ca.pem"
    named = on_folder(load_settings(flags, variables, tmp_path, Path("my.toml")), "verify")
    assert f" --config {tmp_path}/my.toml {said}/ca.pem" in named


def test_what_the_page_says_of_settings_is_so(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "runstore.toml").write_text(example)
    settings = load_settings({}, {}, tmp_path)
    assert settings.log == "kafka"
    assert len(settings.kafka) == 7
    known = {setting.name for setting in SETTINGS}
    assert {name for name in re.findall(r"`(kafka(?:\.[a-z_]+)+)", page) if name != "kafka.security"} <= known
    assert set(re.findall(r"RUNSTORE_[A-Z_]+", page)) <= {setting.variable for setting in SETTINGS}
    assert all(f"`{name}`" in page for name in security_protocols)


def test_damage_is_told_with_what_helps_on_that_log(tmp_path: Path) -> None:
    assert "restored from a backup, the whole data folder" in damaged_log(load_settings({}, {}, tmp_path))
    (heading,) = re.findall("docs/kafka.md, “(.*)”", damaged_log(load_settings({"log": "kafka"}, {}, tmp_path)))
    assert f"\n## {heading}\n" in (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")


def test_what_keeps_a_store_on_kafka_from_opening_is_explained_in_a_page(tmp_path: Path) -> None:
    settings = load_settings({"log": "kafka"}, {}, tmp_path)
    told = explained(OpeningError("the broker does not know the user"), settings)
    assert (told.message, told.status) == ("the broker does not know the user", 2)
    (heading,) = re.findall("docs/kafka.md, “(.*)”", told.hint)
    assert f"\n## {heading}\n" in (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")
    for error, given in (
        (FolderInUse("in use"), settings),
        (MasterKeyError("the wrong one"), settings),
        (OpeningError("no store"), load_settings({}, {}, tmp_path)),
    ):
        told = explained(error, given)
        assert (told.message, told.hint, told.status) == (str(error), "", 2)


def write_pair(folder: Path, name: str, passphrase: bytes = b"") -> None:
    """Write a certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encryption = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
