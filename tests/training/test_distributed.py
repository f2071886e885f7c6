"""Two gloo processes equal one process at the same global batch."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

WORKER = Path(__file__).with_name("worker.py")


def test_two_processes_equal_one(toy, toy_backbone, tmp_path):
    job, docs = tmp_path / "job.pickle", [*toy.train.docs, *toy.val.docs]
    valid = (toy.val.topics, toy.val.qrels)
    job.write_bytes(
        pickle.dumps(
            (
                toy_backbone.spec(),
                str(toy.space.path),
                toy.train.topics,
                toy.train.qrels,
                valid,
                docs,
                str(tmp_path / "states"),
            )
        )
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    for command, out in (([*launch], "two"), ([sys.executable], "one")):
        done = subprocess.run(
            [*command, str(WORKER), str(job), str(tmp_path / out)],
            env=environment,
            timeout=240,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    one, two = load_file(tmp_path / "one"), load_file(tmp_path / "two")
    start = toy_backbone.text_projection().weight
    assert (one["projections.text.weight"] - start).abs().max() > 1e-3
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
