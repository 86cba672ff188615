"""The photographs of groceries at 64 pixels, made of the archive: ``python -m studies.grocery64``.

A minute. Contact sheets of all 5,421 were looked at: nobody can be recognized in any, so none is
left out; hands hold products, and there are no faces. The catalog's pictures, which are of a shop's
site, are not among them.
"""

import hashlib

from dmlkit import data
from dmlkit.cli import terminal
from dmlkit.data import grocery, grocery64
from dmlkit.data.pictures import Pictures


def main() -> None:
    """Write the file that ``dmlkit.data.grocery64`` reads, and say its size and MD5."""
    folder = grocery.located(data.default_root())
    listing = grocery.listed(folder)
    listing = listing.subset(listing.parts != "catalog")
    paths = [folder / path for path in listing.paths]
    side = grocery64.SIDE
    photographs = Pictures(paths, crop=side, resize=side, keep_aspect=True)
    grocery64.write(grocery64.FILE, listing, photographs[:])
    content = grocery64.FILE.read_bytes()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    terminal.console.print(f"{len(content):,} bytes, MD5 {found}")


if __name__ == "__main__":
    main()
