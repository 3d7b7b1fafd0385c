"""Shared memory's banks, and the lane of a warp that holds each element of a matrix instruction's tile.

Shared memory has 32 banks of 4 bytes. In each step a bank serves one word, so lanes that want different words of one
bank wait for one another. A tile lies in pieces of 16 bytes, eight to a row. A matrix instruction reads the same piece
of eight rows at once; `swizzled` places these eight pieces in different banks.
"""

BANKS, WORD, PIECE = 32, 4, 16         # bytes of a word and of a piece
PIECES = BANKS * WORD // PIECE         # pieces of a row that is as wide as all banks


def plain(row, piece):
    """The place of a piece in its row, without swizzling."""
    return piece


def swizzled(row, piece):
    """The place of a piece in its row: exclusive or with the row's number, so no two pieces of a row share a place."""
    return piece ^ row % PIECES


def steps(addresses):
    """How many steps shared memory needs to read words at these addresses: the most words of one bank."""
    words = {address // WORD for address in addresses}         # lanes that want the same word share it
    banks = [word % BANKS for word in words]
    return max(banks.count(bank) for bank in banks)


def column_of_pieces(column, place=plain, row_bytes=128, rows=8):
    """The addresses of all words in one column of pieces, which a matrix instruction reads at once."""
    return [row * row_bytes + place(row, column) * PIECE + word
            for row in range(rows) for word in range(0, PIECE, WORD)]


def accumulator_lane(row, column):
    """The lane of a warp that holds this element of the 16 x 8 float32 result of one step of mma or wgmma (m16n8)."""
    return row % 8 * 4 + column // 2 % 4


def operand_lane(row, column):
    """The lane that holds this element of a 16 x 16 left operand of 16 bits in registers (PTX, m16k16)."""
    return row % 8 * 4 + column % 8 // 2
