"""The picture of chapter 05: which tiles fit the SRAM."""

from flashlab_course.figures.plots import bars
from flashlab_course.figures.style import figure
from flashlab_course.figures.words import bytes_text


def tile_bytes(B_r, B_c, d):
    """What FA1's inner step keeps on chip, in the order in which it is made: name -> bytes, in float32."""
    numbers = {"K_j": B_c * d, "V_j": B_c * d, "Q_i": B_r * d, "O_i": B_r * d, "S_ij": B_r * B_c,
               "scaled S_ij": B_r * B_c, "P_ij": B_r * B_c}
    return {name: 4 * n for name, n in numbers.items()}


@figure
def tiles_in_sram(stacks, sram_bytes):
    """Tiles end to end against the size of the SRAM. stacks: name -> {tile: bytes}, as tile_bytes makes them."""
    said = [f"{name} take {bytes_text(sum(tiles.values()))}" for name, tiles in stacks.items()]
    return bars(stacks, f"{'; '.join(said)}; the SRAM has {bytes_text(sram_bytes)}",
                "Modelled: tiles of FA1's inner step in the order in which they are made.", "bytes on chip", byte=True,
                walls={"the model's SRAM": sram_bytes})
