"""Requests that the workbench refuses: without its token, from elsewhere, with code or paths, too large, or broken."""

import hashlib
import json
import re
import socket
import subprocess
import sys

import httpx
import pytest
from workbench_server import SMALL, asked, compared, said

CODE = (
    "traitor:build@1x8x8",
    "traitor.py",
    "traitor.py:build",
    "model.pt2",
    "/etc/passwd",
    "../models/mine.yaml",
    "mine.yaml",
    "upload:../mine",
    "upload:/etc/passwd",
    "upload:mine.yaml",
    "upload:",
    "lenet5:classes=a:b",
    "",
)


@pytest.fixture(autouse=True)
def traitor(server):
    """Code in the working folder, which leaves a mark where it runs."""
    (server.folder / "traitor.py").write_text(f"open({str(server.folder / 'ran')!r}, 'w').close()\n")
    yield
    assert not (server.folder / "ran").exists()


def error_of(answer, status=400):
    """The one line of a refusal."""
    assert answer.status_code == status, answer.text
    text = answer.json()["error"] if "json" in answer.headers["content-type"] else answer.text.strip()
    assert text
    assert "\n" not in text
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("path", ["/", "/api/choices", "/wrong/", "/wrong/api/choices", "/workbench.js"])
def test_without_the_token_nothing_is_told(server, path):
    assert "lacks the token" in error_of(httpx.get(server.base + path), 403)


def test_half_a_token_and_a_longer_one_are_refused(server):
    for token in (server.token[:-1], server.token + "x", server.token.swapcase()):
        assert httpx.get(f"{server.base}/{token}/").status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:80"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_hosts_and_sites_are_refused(server, headers):
    for method, path in (("GET", ""), ("POST", "api/jobs"), ("PUT", "api/scenarios")):
        assert "This server answers" in error_of(
            server.client.request(method, path, headers=headers, content=b"{}"), 403
        )


def test_the_page_asks_nobody_else(server):
    """The browser itself is told to refuse every other address, and no script stands in the page."""
    page = server.client.get("")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "connect-src 'self'" in policy
    assert page.headers["referrer-policy"] == "no-referrer"
    for name in ("", "workbench.css", "workbench.js"):
        text = server.client.get(name).text
        assert set(re.findall(r"https?://[\w./-]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert re.findall(r"<script(?![^>]*(?:src=|application/json))", page.text) == []


def test_what_a_page_loads_is_small_and_asked_for_once(server):
    """Compressed, at most half a MB in all, under addresses that change with the content and may be kept for ever."""
    page, size = server.client.get(""), 0
    addresses = re.findall(r'(?:src|href)="(\w+\.(?:js|css)\?\w+)"', page.text)
    assert [each.partition("?")[0] for each in addresses] == ["workbench.css", "plotly.js", "workbench.js"]
    for each in addresses:
        answer = server.client.get(each)
        assert answer.headers["content-encoding"] == "gzip"
        assert "immutable" in answer.headers["cache-control"]
        assert hashlib.sha256(answer.content).hexdigest().startswith(each.partition("?")[2]) or "plotly" in each
        size += answer.num_bytes_downloaded
    assert size < 500_000


def test_it_listens_on_the_loopback_address_alone(server):
    port = int(server.base.rpartition(":")[2])
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in (*others, "127.0.0.2"):
        with socket.socket() as tried:
            tried.settimeout(2)
            assert tried.connect_ex((address, port)) != 0


@pytest.mark.parametrize("field", ["model", "cluster"])
def test_code_and_paths_are_no_names(server, field):
    for name in CODE:
        subject = {**SMALL, field: name}
        for address, body in (
            ("api/jobs", {"bench": "bench-of-tests", "kind": "compare", "subject": subject}),
            ("api/cluster", subject),
        ):
            assert field in error_of(server.client.post(address, json=body))


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ({**SMALL, "strategies": ["traitor.yaml"]}, "strategy must be a name"),
        ({**SMALL, "strategies": ["../x.json"]}, "strategy must be a name"),
        ({**SMALL, "strategies": []}, "strategies"),
        ({**SMALL, "strategies": ["data"] * 13}, "strategies"),
        ({**SMALL, "strategies": ["data=4\n"]}, "strategy must be a name"),
        ({**SMALL, "strategies": ["data=4,\x1bfilter=2"]}, "strategy must be a name"),
        ({**SMALL, "edits": {"link.\x00.bandwidth_factor": "1"}}, "change must look like"),
        ({**SMALL, "strategies": ["dta"]}, "did you mean 'data'"),
        ({**SMALL, "batch": 0}, "batch"),
        ({**SMALL, "batch": "64"}, "batch"),
        ({**SMALL, "batch": 10**30}, "batch"),
        ({**SMALL, "dtype": "int8"}, "dtype"),
        ({**SMALL, "price": "0"}, "price must be a number > 0, or CLUSTER=number, got '0'"),
        ({**SMALL, "price": "much"}, "price must be a number > 0, or CLUSTER=number, got 'much'"),
        ({**SMALL, "price": "other=1"}, "price must be of one of the clusters titanx-4"),
        ({**SMALL, "out": "/etc/cron.d/x"}, "out: unknown key"),
        ({**SMALL, "edits": {"device.*.profile": "mine.yaml"}}, "compute profile of the catalogue"),
        ({**SMALL, "edits": {"device.*.profile": "/etc/passwd"}}, "change must look like"),
        ({**SMALL, "edits": {"link.fdr.bandwidth_factor": "1,nodes=256"}}, "change must look like"),
        ({**SMALL, "edits": {"a=b,c": "1"}}, "change must look like"),
        ({**SMALL, "edits": {"link.fdr.bandwidth_factor": "nan"}}, "must be a number"),
        ({**SMALL, "edits": {f"x{i}": "1" for i in range(201)}}, "edits"),
        ({**SMALL, "cluster": "titanx-4:nodes=1,device.*.profile=mine.yaml"}, "parameters of the cluster"),
        ({"model": "lenet5"}, "cluster: missing"),
        (None, "request"),
        ([SMALL], "request"),
    ],
)
def test_requests_that_break_a_rule_are_told_which(server, subject, message):
    if isinstance(subject, dict):
        assert message in error_of(server.client.post("api/cluster", json=subject))
    _, events = compared_or_refused(server.client, subject)
    assert any(message in text for text in events)


def compared_or_refused(client, subject):
    """The answer of a comparison, and what was said against it."""
    answer = asked(client, "compare", subject, bench="refused-bench")
    if answer.status_code == 400:
        return answer, [answer.json()["error"]]
    return answer, [values for _, kind, values in said(client, answer.json()["job"]) if kind == "failed"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 60_000, b"3", b'{"subject": ' + b"1" * 5000 + b"}"])
def test_bodies_that_are_no_requests(server, body):
    for method, path in (
        ("POST", "api/jobs"),
        ("POST", "api/cluster"),
        ("PUT", "api/scenarios"),
        ("POST", "api/scenarios/compared"),
    ):
        error_of(server.client.request(method, path, content=body))


def test_large_requests_and_uploads_are_refused_and_read_to_the_end(server):
    assert "at most 0.0625 MiB" in error_of(server.client.post("api/jobs", content=b" " * 2**20))
    assert "at most 8 MiB" in error_of(server.client.put("api/uploads/models/large", content=b" " * (20 * 2**20)))
    assert not list((server.folder / "models").glob("large*"))


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("models", b""),
        ("models", b"\x00\x01\x02"),
        ("models", b"version: 1\nlayers: [\n"),
        ("models", b"- 1\n- 2\n"),
        ("clusters", b"\xff" * 100),
        ("clusters", b"version: 1\nname: x\n"),
        ("clusters", b"a: &a [1,2]\nb: " + b"[" * 100),
        (
            "clusters",
            b"a: &a [x, x, x, x, x, x, x, x]\n"
            + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b", ".join([b"*%c" % (97 + i)] * 9)) for i in range(9)),
        ),
        ("models", b"!!python/object/apply:os.system ['touch ran']\n"),
    ],
)
def test_uploads_that_are_no_models_or_clusters_leave_nothing(server, kind, content):
    error_of(server.client.put(f"api/uploads/{kind}/broken", content=content))
    assert not (server.folder / kind / "broken.yaml").exists()


def test_uploaded_clusters_lead_to_no_other_file(server):
    """A compute profile in a file is refused, also where the cluster was put there by hand."""
    text = cluster_text().replace("profile: titanx-nervana", "profile: ./own.yaml")
    (server.folder / "own.yaml").write_text("device: traitor\n")
    assert "compute profile must be one of the catalogue" in error_of(
        server.client.put("api/uploads/clusters/leading", content=text.encode())
    )
    (server.folder / "clusters" / "leading.yaml").write_text(text)
    assert "catalogue" in error_of(server.client.post("api/cluster", json={**SMALL, "cluster": "upload:leading"}))
    (server.folder / "clusters" / "leading.yaml").unlink()


def cluster_text():
    """A cluster file of the catalogue."""
    from hwprofiles.catalogue.cluster_catalogue import cluster_path

    return cluster_path("titanx-4").read_text()


def test_uploads_are_compared_like_the_catalogue(server):
    """The same cluster by either way; an upload of the same name and another content is refused."""
    put = server.client.put("api/uploads/clusters/mine", content=cluster_text().encode())
    assert put.json() == {"name": "upload:mine", "devices": 4, "nodes": 1}
    _, own = compared(server.client, {**SMALL, "cluster": "upload:mine"})
    _, catalogue = compared(server.client)
    times = [[row["simulated_s"] for row in each["table"][-1]["numbers"]["strategies"]] for each in (own, catalogue)]
    assert times[0] == times[1]
    other = cluster_text().replace("version: 1", "version: 1  # changed").encode()
    assert "names another file" in error_of(server.client.put("api/uploads/clusters/mine", content=other))
    assert server.client.delete("api/uploads/clusters/mine").json() == {}
    assert "cannot be removed" in error_of(server.client.delete("api/uploads/clusters/mine"))


@pytest.mark.parametrize(
    "name", ["..%2f..%2fx", "%2e%2e", "..", "a%00b", "a.yaml", "x" * 64, "%C3%A4", ".hidden", "a b"]
)
def test_names_lead_nowhere_else(server, name):
    for method, path in (
        ("PUT", f"api/uploads/clusters/{name}"),
        ("DELETE", f"api/uploads/models/{name}"),
        ("DELETE", f"api/scenarios/{name}"),
        ("PUT", f"api/uploads/{name}/x"),
    ):
        request = server.client.build_request(method, path, content=cluster_text().encode())
        request.url = request.url.copy_with(raw_path=f"/{server.token}/{path}".encode())
        assert server.client.send(request).status_code in (400, 404, 405)
    assert sorted(each.name for each in server.folder.iterdir()) == [
        *sorted(
            {"clusters", "models", "pages", "scenarios", "traitor.py"}
            | {p.name for p in server.folder.glob("own.yaml")}
        )
    ]


def test_links_in_the_folder_are_not_followed(server, tmp_path):
    outside = tmp_path / "outside.yaml"
    outside.write_text(cluster_text())
    for kind in ("clusters", "scenarios"):
        (server.folder / kind / f"link{'.yaml' if kind == 'clusters' else '.json'}").symlink_to(outside)
    assert "upload:link" not in server.client.get("api/choices").json()["uploaded"]["clusters"]
    assert "regular file" in error_of(server.client.put("api/uploads/clusters/link", content=b"x"))
    assert "regular file" in error_of(server.client.delete("api/scenarios/link"))
    assert outside.read_text() == cluster_text()
    for each in server.folder.glob("*/link.*"):
        each.unlink()


def test_scenarios_are_kept_replaced_compared_and_dropped(server):
    job, events = compared(server.client)
    for name in ("a / b", "a / b", "zwei"):
        answer = server.client.put("api/scenarios", json={"name": name, "job": job})
        assert answer.status_code == 200
    rows = answer.json()["scenarios"]
    assert [row["name"] for row in rows] == ["a / b", "zwei"]
    stored = json.loads((server.folder / "scenarios" / f"{rows[0]['file']}.json").read_text())
    assert stored["numbers"] == json.loads(json.dumps(events["table"][-1]["numbers"]))
    pair = server.client.post("api/scenarios/compared", json={"left": rows[0]["file"], "right": rows[1]["file"]}).json()
    assert "train equally fast" in pair["headline"]
    assert [row["ratio"] for row in pair["rows"]] == ["1 ×", "1 ×"]
    assert pair["differences"] == []
    for row in rows:
        left = server.client.delete(f"api/scenarios/{row['file']}").json()["scenarios"]
    assert left == []


def test_names_of_scenarios_have_rules(server):
    job, _ = compared(server.client)
    for name in ("", "   ", "x" * 101, "tab\x1b[2J", 7, None):
        assert "name of a scenario" in error_of(server.client.put("api/scenarios", json={"name": name, "job": job}))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 2}',
        '{"version": 1, "name": "x", "numbers": {}, "subject": {}}',
        '{"version": 1, "name": "x", "numbers": {"strategies": [{"name": "data"}]}, "subject": {}}',
        '{"version": 1, "name": "x", "numbers": {"strategies": [{"name": "data", "expected_s": 1, "samples_per_s": 1,'
        ' "speedup": 1, "money_per_million_samples": "much"}]}, "subject": {"model": "lenet5", "cluster": "titanx-4",'
        ' "batch": 64, "strategies": ["data"]}}',
        '{"version": 1, "name": "x", "numbers": {"strategies": []}, "subject": {"model": "traitor:build"}}',
    ],
)
def test_broken_scenarios_are_listed_as_such_and_can_be_dropped(server, content):
    (server.folder / "scenarios" / "broken.json").write_text(content)
    (row,) = server.client.get("api/choices").json()["scenarios"]
    assert row["file"] == "broken"
    assert row["error"]
    error_of(server.client.post("api/scenarios/compared", json={"left": "broken", "right": "broken"}))
    assert server.client.delete("api/scenarios/broken").json() == {"scenarios": []}


def test_unknown_addresses_and_methods(server):
    assert "not one of the workbench" in error_of(server.client.get("api/nothing"), 404)
    assert error_of(server.client.get("api/jobs"), 405)


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_folders_that_cannot_be_are_one_line(tmp_path, folder):
    (tmp_path / "file").write_text("x")
    ended = serve(tmp_path / folder, "--port", "0")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"orrery: working folder must .*\n", ended.stderr)


def test_a_port_in_use_is_one_line(server, tmp_path):
    port = server.base.rpartition(":")[2]
    ended = serve(tmp_path / "folder", "--port", port)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"orrery: port must be free, got {port}, which another process uses; --port 0 takes any\n"


def serve(*words):
    """The command, where it ends by itself."""
    command = [sys.executable, "-m", "orrery", "serve", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
