"""How much longer `import diffstride` takes than `import torch`, each in a fresh process.

python -m benchmarks.import_time
"""

import statistics
import subprocess
import sys

CODE = """
import time
start = time.perf_counter()
import torch
middle = time.perf_counter()
import diffstride
print(middle - start, time.perf_counter() - middle)
"""


def main(rounds: int = 9) -> None:
    runs = [
        subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
        for _ in range(rounds)
    ]
    times = [tuple(float(t) for t in run.stdout.split()) for run in runs]
    torch_time, extra = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"import torch       {torch_time:7.3f} s   (median of {rounds} processes)")
    print(f"then diffstride    {extra:7.3f} s")


if __name__ == "__main__":
    main()
