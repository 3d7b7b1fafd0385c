# kind: point missed
# what: nothing is predicted: the closed form of flashlab.cost is called, in bytes, and divided by the element size
# shows: numbers right; the stub forbids the finished function from flashlab.cost
"""ex07_traffic_naive · predict the traffic of naive attention"""


import importlib


def naive_traffic(N_q, N_k, d, d_v):
    """(reads, writes) in elements."""
    cost = importlib.import_module("flashlab.cost")
    moved = cost.naive_forward(N_q, N_k, d, d_v, element_size=4)
    return moved.read // 4, moved.written // 4
