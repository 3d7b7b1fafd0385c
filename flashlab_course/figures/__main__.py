"""python -m flashlab_course.figures [OUT_DIR]: the README's picture, in docs or in the folder given."""

import sys
from pathlib import Path

from flashlab_course import figures, sweeps


def main(arguments):
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        raise SystemExit("usage: python -m flashlab_course.figures [OUT_DIR]    (default: docs)")
    folder = Path(*arguments or ["docs"])
    if not folder.is_dir():
        raise SystemExit("python -m flashlab_course.figures: OUT_DIR must be a folder that is there, got "
                         f"{str(folder)!r}")
    figures.traffic_against(sweeps.over_N([256, 512, 1024, 2048, 4096])).savefig(folder / "traffic.png", dpi=130)
    print(f"wrote {folder / 'traffic.png'}")


if __name__ == "__main__":
    main(sys.argv[1:])
