"""The server of the page: what it refuses to begin with, where it listens, and how it ends."""

import signal
import subprocess
import urllib.request
from contextlib import closing
from dataclasses import replace

import pytest

from semishot.errors import InputError
from semishot.label.server import LOCK, listening, opened
from support.label_page import process
from support.labeling import serving


def test_a_second_process_is_refused(asked):
    with opened(asked):
        line = "another process is labeling in"
        with pytest.raises(InputError, match=line), opened(asked):
            pass
    assert not (asked.folder / LOCK).exists()


def test_wrong_folders_are_refused_before_anything_is_written(tmp_path, drawings, asked):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for request, reason in [
        (replace(asked, pile=tmp_path / "empty"), "no images in"),
        (replace(asked, out=tmp_path / "file" / "out"), "cannot make the folder --out"),
        (replace(asked, pile=tmp_path / "none"), "is not a folder; it holds the images"),
        (replace(asked, pile=tmp_path / "pile.zip"), "but an archive: unpack it first; it holds"),
        (replace(asked, out=drawings[1]), "holds your images"),
        (replace(asked, labeled=tmp_path / "none"), "--labeled .* is not a folder"),
    ]:
        with pytest.raises(InputError, match=reason), opened(request):
            pass
    assert not asked.folder.exists()


def test_tabs_find_the_server_again_after_a_restart(asked):
    with serving(asked) as (running, client):
        port, cookie = running.listener.getsockname()[1], client.cookie
    with serving(asked) as (running, client):
        assert running.listener.getsockname()[1] == port
        client.cookie = cookie
        assert client.ask("/state")[0] == 200


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_server_and_says_that_answers_are_kept(asked, sent, code):
    with process(asked, stderr=subprocess.PIPE) as (server, address):
        assert address.startswith("http://127.0.0.1:")
        urllib.request.urlopen(address).close()  # it is up
        server.send_signal(sent)
        said = server.stderr.read()
        assert server.wait(60) == code
    assert said.splitlines() == [
        f"Answers are kept in {asked.folder}. Press Ctrl-C to stop; nothing is lost.",
        "semishot: interrupted; answers are kept, and the same command continues",
    ]


def test_addresses_and_ports_that_cannot_be_used_are_refused():
    with pytest.raises(InputError, match="--port must be between 0 and 65535, not 70000"):
        listening("127.0.0.1", 70000, 0)
    with pytest.raises(InputError, match="is not an address of this machine"):
        listening("no such host", 0, 0)
    with closing(listening("127.0.0.1", 0, 0)) as first:
        taken = first.getsockname()[1]
        with pytest.raises(InputError, match="choose another --port"):
            listening("127.0.0.1", taken, 0)
