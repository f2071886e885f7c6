"""The quickstart's imports against the installed wheel: run outside the checkout, with the install folder as argument."""

import sys
import time

start = time.perf_counter()
import pyterrier_grasp as ptg  # noqa: E402

seconds = time.perf_counter() - start
if not ptg.__file__.startswith(sys.argv[1]):
    raise SystemExit(f"imported {ptg.__file__}, not the wheel in {sys.argv[1]}")
if "torch" in sys.modules:
    raise SystemExit("import pyterrier_grasp imported torch")

import pyterrier as pt  # noqa: E402

for name in ptg.__all__:
    getattr(ptg, name)
topics = pt.get_dataset("grasp:scenes/test").get_topics()
states = ptg.Backbone.load("scenes", device="cpu").encode_text(topics["query"].head(2).tolist())
print(f"wheel: import in {seconds:.2f} s, {len(ptg.__all__)} public names, token states {tuple(states.states.shape)}")
