"""The README's animation, docs/race.gif: `make figures`. It needs chromium.

A browser draws one page with a still picture for each frame, one below the other; its screenshot is cut into frames.
"""

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from PIL import Image

from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive import naive_forward
from flashlab_course.player import play, record

FRAMES, MS, LAST_MS = 36, 250, 4000
HEIGHT = 434           # of a frame: bytes and tensors; the numbers below them would be gone before they are read


def race():
    """The player of chapter 00: naive attention and FlashAttention-2, at each moment after equally many bytes."""
    torch.manual_seed(0)
    toy = [torch.randn(16, 4) for _ in range(3)]
    return play(record(naive_forward, *toy, rows=4), record(fa2_forward, *toy, B_r=4, B_c=4, sram_bytes=1024))


def stills(player):
    """The race as SVG, at even steps of its clock."""
    clock = player.clock()
    for frame in range(FRAMES):
        player.start = next(tick for tick, ms in enumerate(clock) if tick and ms >= clock[-1] * frame / (FRAMES - 1))
        yield player.still()


def main():
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if not browser:
        raise SystemExit("docs/race.py draws with chromium, google-chrome or chrome, and finds none of them here")
    drawn = list(stills(race()))
    width, height = (int(drawn[0].split(f'{side}="')[1].split('"')[0]) for side in ("width", "height"))
    with TemporaryDirectory() as folder:
        page, shot = Path(folder, "race.html"), Path(folder, "race.png")
        page.write_text(f"<meta charset=utf-8><style>body {{margin: 0}} svg {{display: block}}</style>{''.join(drawn)}")
        subprocess.run([browser, "--headless", *["--no-sandbox"] * (os.geteuid() == 0), "--hide-scrollbars",
                        f"--window-size={width},{height * FRAMES}", f"--screenshot={shot}", page.as_uri()], check=True)
        strip = Image.open(shot).convert("RGB")
    frames = [strip.crop((0, height * n, width, height * n + HEIGHT)) for n in range(FRAMES)]
    palette = frames[FRAMES // 2].quantize(32)                 # one for all frames: only what has moved is stored
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    first.save(Path(__file__).with_name("race.gif"), save_all=True, append_images=others, loop=0,
               duration=[MS] * len(others) + [LAST_MS])


if __name__ == "__main__":
    main()
