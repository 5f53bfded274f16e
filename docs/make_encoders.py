"""Write the table of docs/encoders.md from the catalogue: python docs/make_encoders.py"""

from pathlib import Path

from histolumen.encoders.catalogue import CATALOGUE
from histolumen.encoders.listing import HEADINGS, facts, table

PAGE = Path(__file__).with_name("encoders.md")
BEGIN, END = "<!-- table: python docs/make_encoders.py -->\n", "<!-- end of table -->"


def page() -> str:
    """The text of docs/encoders.md with an up-to-date table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    made = table([facts(name) for name in CATALOGUE], HEADINGS[:-1])
    return f"{before}{BEGIN}{made}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
