#!/usr/bin/env python3
"""Prints what PyTorch's optimizers make of five parameters in 100 steps, float64: optimizers.txt beside this file.
LAMB, which PyTorch has not, is written down here after the paper.

    python3 optimizers.py > optimizers.txt        # needs the Python package torch
"""
import math

import torch

STEPS = 100
START = [1.0, -0.5, 0.25, 2.0, -3.0]


def gradient(step, i, w):
    return 0.3 * w + math.sin(step * (i + 1))


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You et al. 2020, with phi(z) = z."""

    def __init__(self, parameters, weight_decay, beta1=0.9, beta2=0.999, eps=1e-8):
        super().__init__(parameters, {"lr": 1})
        self.decay, self.beta1, self.beta2, self.eps = weight_decay, beta1, beta2, eps
        self.steps, self.m, self.v = 0, 0, 0

    @torch.no_grad()
    def step(self):
        (group,) = self.param_groups
        (w,) = group["params"]
        self.steps += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * w.grad
        self.v = self.beta2 * self.v + (1 - self.beta2) * w.grad**2
        m = self.m / (1 - self.beta1**self.steps)
        v = self.v / (1 - self.beta2**self.steps)
        direction = m / (v.sqrt() + self.eps) + self.decay * w
        trust = w.norm() / direction.norm() if w.norm() > 0 and direction.norm() > 0 else 1
        w -= group["lr"] * trust * direction


def run_rows():
    """SparseAdam with a table of five rows. Each gradient has only some of them. With such a small epsilon, it does not
    matter that PyTorch adds it before the bias is corrected."""
    table = torch.tensor(START, dtype=torch.float64).reshape(-1, 1).requires_grad_()
    optimizer = torch.optim.SparseAdam([table], lr=1, eps=1e-30)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.05 / (1 + step / 10)
        rows = [i for i in range(len(START)) if (i + step) % 3 != 0]
        values = [[gradient(step, i, table[i].item())] for i in rows]
        table.grad = torch.sparse_coo_tensor([rows], torch.tensor(values, dtype=torch.float64), table.shape)
        optimizer.step()
    print("lazy_adam", *(x.hex() for x in table.flatten().tolist()))


def run(name, make, clip=None, clip_norm=None, l1=0):
    w = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    optimizer = make([w])
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 / (1 + step / 10)
        with torch.no_grad():
            w.grad = torch.tensor([gradient(step, i, x) for i, x in enumerate(w.tolist())], dtype=torch.float64)
        if clip_norm:
            torch.nn.utils.clip_grad_norm_([w], clip_norm)
        if clip:
            torch.nn.utils.clip_grad_value_([w], clip)
        w.grad += l1 * w.detach().sign()
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
run("lamb", lambda p: Lamb(p, 0.25, 0.8, 0.95, 1e-3))
run("lamb_without_decay", lambda p: Lamb(p, 0), l1=0.125)
run("momentum_l1", lambda p: torch.optim.SGD(p, lr=1, momentum=0.75, weight_decay=0.25), l1=0.5)
run("adamw_l1", lambda p: torch.optim.AdamW(p, lr=1, weight_decay=0.25), clip=0.5, l1=0.5)
run("momentum_norm", lambda p: torch.optim.SGD(p, lr=1, momentum=0.75, weight_decay=0.25), clip_norm=1)
run("lamb_norm", lambda p: Lamb(p, 0.25), clip_norm=1)
run_rows()
