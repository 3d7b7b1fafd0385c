from flashlab_course.check.cases import Mistake, case_of

LAUNCH, SHARE = "65536 // (128 * (consumers + 1)) // 8 * 8", "(launch * (consumers + 1) - 24) // consumers // 8 * 8"
P, O = "64 * keys // 2 // 128", "64 * d // 128"

outputs = [("launch",), ("share",), ("left",)]
ints_only = True
features = {"more than two consumers": lambda consumers: consumers > 2, "keys other than d": lambda d, keys: keys != d}
case = case_of(lambda consumers, d, keys: locals())


def truth(consumers, d, keys):
    """By trying every multiple of 8."""
    launch = max(n for n in range(0, 512, 8) if n * 128 * (consumers + 1) <= 65536)
    share = max(n for n in range(0, 512, 8) if n * consumers + 24 <= launch * (consumers + 1))
    return launch, share, share - (64 * keys * (32 + 16) + 64 * d * 32) // 32 // 128


cases = [case("the example", 2, 128, 128),
         case("three consumers", 3, 64, 128),
         case("large blocks", 2, 64, 256),
         case("wide heads", 2, 256, 64),
         case("five consumers", 5, 48, 80),
         case("seven consumers", 7, 128, 16)]
mistakes = [
    Mistake("producer_as_one_warp", "the producer was counted as one warp", "how many warps Triton gives the producer",
            (LAUNCH, "65536 // (128 * consumers + 32) // 8 * 8")),
    Mistake("no_producer", "only the consumers' threads were given registers at launch", "who is there at launch",
            (LAUNCH, "65536 // (128 * consumers) // 8 * 8")),
    Mistake("launch_not_rounded", "the number at launch is no multiple of 8", "how registers are counted", (LAUNCH,
             LAUNCH.removesuffix(" // 8 * 8"))),
    Mistake("share_not_rounded", "the consumers' number is no multiple of 8", "how registers are counted", (SHARE,
             SHARE.removesuffix(" // 8 * 8"))),
    Mistake("nothing_given_up", "the producer kept its registers", "how many the producer keeps", (SHARE, "launch")),
    Mistake("all_given_up", "the producer kept none", "how many the producer keeps", (SHARE,
             SHARE.replace(" - 24", ""))),
    Mistake("given_up_to_each", "each consumer got all that the producer gave up", "how many consumers share it",
            (SHARE, "(launch + launch - 24) // 8 * 8")),
    Mistake("P_in_32_bits", "P was counted with 32 bits a number", "how many numbers of P a register holds", (P,
             "64 * keys // 128")),
    Mistake("P_left_out", "P was left out", "the three tiles", ("S + P + O", "S + O")),
    Mistake("O_as_wide_as_S", "O was counted with the width of S", "how many columns O has", (O, "64 * keys // 128")),
    Mistake("never_below_zero", "tiles that do not fit were said to leave 0", "tiles that need more than there is",
            ("share - (S + P + O)", "max(0, share - (S + P + O))")),
]
hints = ["Take one thread of each warpgroup: together they may have 65,536 / 128 registers.",
         "The producer's thread gives up all but 24. Divide these by the number of consumers before you round.",
         "A tile of 64 x n float32 numbers takes n / 2 registers of each of 128 threads. One in 16 bits takes half of "
         "that."]
