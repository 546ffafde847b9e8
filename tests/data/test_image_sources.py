"""One open zip serves every thread."""

import zipfile
from concurrent.futures import ThreadPoolExecutor

from semishot.data.image_sources import ZipMember, read_bytes


def test_threads_read_the_right_bytes_of_a_zip(tmp_path):
    path = tmp_path / "images.zip"
    contents = {f"{n}.png": bytes([n % 256, n // 256]) * (4000 + n) for n in range(400)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda name: read_bytes(ZipMember(str(path), name)), contents))
    assert found == list(contents.values())
