"""The server answers its own page on this computer, and nobody else."""

import http.client
import json
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from ennopt.cli import main
from ennopt.explore.server import HOST, LARGEST_BODY


def asked(service, path="", method="GET", body=None, **headers):
    """Status, headers and text for a request; None leaves a header out."""
    port = urlsplit(service.address).port
    link = http.client.HTTPConnection(HOST, port, timeout=60)
    given = {
        "Host": f"{HOST}:{port}",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    link.putrequest(method, path or urlsplit(service.address).path, skip_host=True)
    content = (
        b""
        if body is None
        else body
        if isinstance(body, bytes)
        else json.dumps(body).encode()
    )
    if method == "POST":
        given["Content-Length"] = str(len(content))
    for name, text in given.items():
        if text is not None:
            link.putheader(name, text)
    link.endheaders(content if method == "POST" else None)
    response = link.getresponse()
    found = response.status, response.headers, response.read().decode()
    link.close()
    return found


def test_it_listens_to_this_computer_only(served):
    assert urlsplit(served.address).hostname == "127.0.0.1"
    with socket.socket() as other, pytest.raises(OSError):
        other.settimeout(5)
        other.connect(("127.0.0.2", urlsplit(served.address).port))


def test_the_page_allows_nothing_from_elsewhere(served):
    status, headers, text = asked(served)
    assert status == 200 and "Find the best input" in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "http:" not in text and "https:" not in text
    for name in ("style.css", "page.js"):
        path = f"{urlsplit(served.address).path}static/{name}"
        assert asked(served, path)[0] == 200
        assert "http" not in asked(served, path)[2]


STRANGE = {
    "another host": {"Host": "evil.example"},
    "no host": {"Host": None},
    "another port": {"Host": "127.0.0.1:1"},
    "another origin": {"Origin": "http://evil.example"},
    "no origin of its own": {"Origin": "null"},
    "another site": {"Sec_Fetch_Site": "cross-site"},
    "a sibling": {"Sec_Fetch_Site": "same-site"},
}


@pytest.mark.parametrize("headers", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("place", ["", "run", "static/page.js"])
def test_a_strange_request_is_refused(headers, place, served):
    path = urlsplit(served.address).path + place
    method = "POST" if place == "run" else "GET"
    status, _, text = asked(served, path, method, {}, **headers)
    assert status in (400, 403) and "prediction" not in text
    assert not served.desk.runs.live


def test_without_the_token_there_is_nothing(served):
    token = served.desk.token
    assert len(token) >= 32
    places = ["/", "/x/", f"/{token[:-1]}/", f"/{token}x/run", "/static/page.js"]
    places += [f"/{token}/../{token[:-1]}/", f"/{token}/static/../../etc/passwd"]
    for path in places:
        status, _, text = asked(served, path)
        assert status in (403, 404, 405)
        assert "Find the best input" not in text and "root:" not in text


def test_bodies_that_are_no_form_are_refused(served):
    path = urlsplit(served.address).path + "run"
    for body in (b"[1, 2", b"[1, 2]", b" " * (LARGEST_BODY + 1)):
        status, _, text = asked(served, path, "POST", body)
        assert status == 400 and json.loads(text)["wrong"][""]
    assert not served.desk.runs.live


def test_an_answer_that_is_not_there_cannot_be_downloaded(served):
    base = urlsplit(served.address).path + "answers/"
    for rest in ("nobody/report.html", "nobody/passwd", "..%2f..%2fx/report.html"):
        assert asked(served, base + rest)[0] in (403, 404)


def test_the_command_prints_an_address_and_ends_with_ctrl_c(folder):
    line = [sys.executable, "-m", "ennopt", "explore", "model.npz", "--no-browser"]
    process = subprocess.Popen(
        [*line, "--data", "rows.csv"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        address = process.stdout.readline().split()[-1]
        port = urlsplit(address).port
        link = http.client.HTTPConnection(HOST, port, timeout=60)
        link.request("GET", urlsplit(address).path)
        assert link.getresponse().status == 200
        link.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()


def test_the_command_refuses_what_it_cannot_serve(folder, capsys, served):
    model = str(folder / "model.npz")
    assert main(["explore", model, "--no-browser"]) == 2
    assert "Add --lower and --upper" in capsys.readouterr().err
    taken = str(urlsplit(served.address).port)
    given = ["--lower", "0", "--upper", "1", "--port", taken, "--no-browser"]
    assert main(["explore", model, *given]) == 2
    assert f"Expected a port that is free, got {taken}" in capsys.readouterr().err


def test_without_its_packages_the_command_says_what_to_install(
    folder, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    given = ["explore", str(folder / "hard.npz"), "--no-browser"]
    assert main(given) == 2
    assert 'pip install "ennopt[explore]"' in capsys.readouterr().err
