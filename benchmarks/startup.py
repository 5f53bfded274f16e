"""Time to the first answer of the command line, relative to `import torch`, which no way to use torch avoids.

usage: python benchmarks/startup.py [--rounds 5] [--quick] [--run RUN]
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from timing import GLAS_SIZE, interleaved, median_ratio, picture, row, write_untrained_run


def main() -> None:
    """Print one row per command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--run", type=Path, help="a trained run instead of an untrained model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = options.run or write_untrained_run(Path(temporary) / "run")
        image = Path(temporary) / "image.png"
        Image.fromarray(picture(*GLAS_SIZE)).save(image)
        numbers = iter(range(1000))

        def call(*arguments: str) -> None:
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

        def predict() -> None:
            out = f"{temporary}/out-{next(numbers)}"
            call("-m", "histolumen", "predict", str(run), str(image), "--out", out)

        ways = {
            "torch": lambda: call("-c", "import torch"),
            "help": lambda: call("-m", "histolumen", "--help"),
            "predict": predict,
        }
        times = interleaved(ways, 2 if options.quick else options.rounds)
    print(", ".join(f"{name} {min(values):.2f} s" for name, values in times.items()), "(fastest round)")
    row("`histolumen --help`", f"{median_ratio(times['help'], times['torch']):.2f} x `import torch`")
    value = f"{median_ratio(times['predict'], times['torch']):.2f} x `import torch`"
    row("`histolumen predict`, one image, start to end", value, "2 x, half of before")


if __name__ == "__main__":
    main()
