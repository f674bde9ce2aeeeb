#!/usr/bin/env python3
"""Prints what PyTorch's optimizers make of five parameters in 100 steps, float64: optimizers.txt beside this file.

    python3 optimizers.py > optimizers.txt        # needs the Python package torch
"""
import math

import torch

STEPS = 100
START = [1.0, -0.5, 0.25, 2.0, -3.0]


def gradient(step, i, w):
    return 0.3 * w + math.sin(step * (i + 1))


def run(name, make, clip=None):
    w = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    optimizer = make([w])
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 / (1 + step / 10)
        with torch.no_grad():
            w.grad = torch.tensor([gradient(step, i, x) for i, x in enumerate(w.tolist())], dtype=torch.float64)
        if clip:
            torch.nn.utils.clip_grad_value_([w], clip)
        optimizer.step()
    print(name, *(x.hex() for x in w.tolist()))


print(f"# PyTorch {torch.__version__.split('+')[0]}")
run("sgd", lambda p: torch.optim.SGD(p, lr=1, weight_decay=0.25))
run("momentum", lambda p: torch.optim.SGD(p, lr=1, momentum=0.75, weight_decay=0.25))
run("nesterov", lambda p: torch.optim.SGD(p, lr=1, momentum=0.75, nesterov=True))
run("adagrad", lambda p: torch.optim.Adagrad(p, lr=1, weight_decay=0.25))
run("rmsprop", lambda p: torch.optim.RMSprop(p, lr=1, weight_decay=0.25))
run("rmsprop_momentum", lambda p: torch.optim.RMSprop(p, lr=1, alpha=0.9, momentum=0.75))
run("adam", lambda p: torch.optim.Adam(p, lr=1, weight_decay=0.25))
run("adamw", lambda p: torch.optim.AdamW(p, lr=1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.25))
run("adamw_clipped", lambda p: torch.optim.AdamW(p, lr=1, weight_decay=0.25), clip=0.5)
