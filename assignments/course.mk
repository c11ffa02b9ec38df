# The course. Included by the Makefile, which defines BIN.
#   make release              students' notebooks -> classroom/release
#   make collect ARCHIVE=…    a zip file of notebooks -> classroom/submitted
#   make grade SUBMISSIONS=…  a folder that holds one folder for each student -> classroom/marks
#   make feedback             pages for students  -> classroom/feedback
#   make guide                sheets for teachers -> classroom/guide
#   make check-assignments    the whole way with a made-up class, every mark compared (EXCEPT=03 leaves one out)
# A=03 for one assignment, CLASSROOM=… for another folder than classroom/, FRESH=1 to draw new hidden inputs and grade anew.
A           ?=
CLASSROOM   ?= classroom
SUBMISSIONS ?= $(CLASSROOM)/submitted
ISOLATION   ?= auto
PATIENCE    ?= 1
EXCEPT      ?=
ARCHIVE     ?=
COURSE      := PYTHONPATH=lib $(BIN)/python -m course
OPTIONS      = --classroom $(CLASSROOM) --isolation $(ISOLATION) --jobs $(JOBS) --patience $(PATIENCE)

.PHONY: release collect grade feedback marks guide check-assignments assignment-pages slides

release: $(VENV)/.ready  ## make the students' notebooks (A=03 for one assignment)
	$(COURSE) release $(A) $(OPTIONS)

collect: $(VENV)/.ready  ## unpack what was handed in: make collect A=03 ARCHIVE=all.zip, with ada_03_recurrent.ipynb in it
	$(COURSE) collect $(A) $(OPTIONS) $(if $(ARCHIVE),--archive $(ARCHIVE))

grade: $(VENV)/.ready  ## grade a class: make grade A=03 SUBMISSIONS=folder
	$(COURSE) grade $(A) $(OPTIONS) --submissions $(SUBMISSIONS) $(if $(FRESH),--fresh)

feedback: $(VENV)/.ready  ## make the students' feedback pages
	$(COURSE) feedback $(A) $(OPTIONS)

marks: $(VENV)/.ready  ## write the tables of marks again, after marking by hand
	$(COURSE) marks $(A) $(OPTIONS)

guide: $(VENV)/.ready  ## write the teacher's sheets: rubrics, model answers, mistakes to expect, solutions
	$(COURSE) guide $(A) $(OPTIONS)

check-assignments: $(VENV)/.ready  ## grade the fake class of each assignment and compare every mark
	$(COURSE) check $(A) $(OPTIONS) $(if $(EXCEPT),--except $(EXCEPT))

assignment-pages: $(VENV)/.ready  ## write the assignments' pages of the book again, after a change
	PYTHONPATH=lib $(BIN)/python -m course.pages

slides: $(VENV)/.ready  ## make slides from chapters (CH=04 for one) -> build/slides
	PYTHONPATH=lib $(BIN)/python -m book.slides $(CH)
