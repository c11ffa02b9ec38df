"""The teacher's sheet of an assignment, made from what its folder declares: rubric, model answers, mistakes to expect."""

from course.notebook import read_source
from course.questions import Assignment, load_module


def sheet(assignment: Assignment) -> str:
    """Markdown. It holds the solutions, so it is for teachers."""
    nb = read_source(assignment)
    number = assignment.name.partition("_")[0].lstrip("0")
    text = [
        f"# Assignment {number}: {assignment.title}",
        f"{assignment.points:g} points. Not for students: solutions below.",
        "## Rubric",
    ]
    for question in assignment.questions:
        text.append(f"### {question.id}: {question.title} ({question.points:g} points)")
        text.append(
            rows(
                ("points", "for", "what a student is told when it fails"),
                [(p.points, p.title, p.hint) for p in question.parts],
            )
        )
    for item in assignment.written:
        text.append(f"### {item.id}: {item.title} ({item.points:g} points, marked by hand)")
        text.append(rows(("points", "for"), [(points, line) for line, points in item.rubric.items()]))
        model = next(c.source for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == item.id)
        text += ["A model answer:", "\n".join(f"> {line}" for line in model.split("\n"))]
    text.append("## Mistakes to expect")
    for fake in load_module(assignment.folder / "fake_class.py").FAKES:
        lost = [
            (q, assignment.question(q).points - points)
            for q, points in fake.marks.items()
            if q not in fake.answers or fake.answers[q]
        ]
        costs = ", ".join(f"{points:g} points in {q}" for q, points in lost if points)
        costs = f" It costs {costs}." if costs else ""  # some only show that another way is right, too
        text.append(f"**{fake.name.replace('-', ' ').capitalize()}.** {fake.why}{costs}")
    text.append("## Solutions")
    for cell in nb.cells:
        if cell.metadata.course["kind"] == "answer":
            text.append(f"```python\n{cell.source}\n```")
    return "\n\n".join(text) + "\n"


def rows(head: tuple[str, ...], content: list[tuple[object, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *content]
    return "\n".join(
        "| " + " | ".join(f"{v:g}" if isinstance(v, float | int) else str(v) for v in line) + " |" for line in lines
    )
