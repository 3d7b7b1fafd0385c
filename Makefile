# make help lists the targets. Needs only python3 >= 3.11 with venv; works with GNU make 3.81 (macOS).
PYTHON = python3
VENV = .venv
PY = $(VENV)/bin/python
INSTALLED = $(VENV)/.installed
LAB_ARGS =
CHECK_ARGS =
BENCH_ARGS =
NOTEBOOKS =
# Jupyter refuses to run as root without this; containers and rented GPU machines often are root.
AS_ROOT = $(if $(filter 0,$(shell id -u)),--allow-root)

# Tests and notebooks run several at a time: with more threads than cores PyTorch's wait for one another most of the time.
ONE_THREAD = env OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1}

# $(call timed,name,command): run it, say how long it took.
timed = start=$$(date +%s); $(2) || exit $$?; echo "[make] $(1): $$(($$(date +%s) - start)) s"

.PHONY: help lab update check test test-all house notebooks exercises figures bench site browser-test
.DEFAULT_GOAL = help

help:       ## this list
	@sed -n 's/^\([a-z-]*\): .*## /  make \1	/p' Makefile | expand -t 20

lab: $(INSTALLED)       ## JupyterLab on the first chapter, in my/: your own copies; LAB_ARGS="--no-browser" passes arguments on
	@$(PY) -m flashlab_course.workspace
	$(PY) -m jupyter lab --LabApp.default_url=/lab/tree/my/00_start_here.ipynb $(AS_ROOT) $(LAB_ARGS)

update: $(INSTALLED)    ## the newest version; what you have written in my/ stays, and moves into stubs that have changed
	@$(PY) -m flashlab_course.workspace --move
	@old=$$(git rev-parse HEAD) && git pull -q --ff-only && $(MAKE) -s $(INSTALLED) && \
	  $(PY) -m flashlab_course.workspace --since $$old

check: $(INSTALLED)     ## your exercises: those begun are checked, with your progress; CHECK_ARGS="ex03_merge --hint" passes arguments on
	@$(PY) -m flashlab check $(CHECK_ARGS) || [ $$? -eq 1 ]

test: $(INSTALLED)      ## everything CI runs: ruff, unit tests, every notebook from the top
	@$(call timed,ruff,$(PY) -m ruff check flashlab flashlab_course notebooks/src notebooks/build.py solutions site docs tests)
	@$(call timed,unit tests,$(ONE_THREAD) $(PY) -m pytest -n auto --dist loadfile --sample)
	@$(call timed,notebooks,$(PY) notebooks/build.py --check)

test-all: $(INSTALLED)  ## every unit test; `make test` leaves out repetitions, see tests/conftest.py
	@$(call timed,unit tests,$(ONE_THREAD) $(PY) -m pytest -n auto --dist loadfile)

house:      ## lines and tokens of every folder against its budget, and what is too long
	@$(PYTHON) tests/house.py

notebooks: $(INSTALLED) ## rebuild notebooks/*.ipynb from notebooks/src; NOTEBOOKS="03 06" only these
	@$(call timed,notebooks,$(PY) notebooks/build.py $(NOTEBOOKS))

exercises: $(INSTALLED) ## exercises/ from solutions/
	$(PY) solutions/build.py

figures: $(INSTALLED)   ## redraw the README's animation; needs chromium
	$(PY) docs/race.py

bench: $(INSTALLED)     ## measure the ladder on this GPU; BENCH_ARGS passes arguments on
	$(PY) -m flashlab bench $(BENCH_ARGS)

site: $(VENV)/.site      ## the course as pages: build/site/html, from notebooks/*.ipynb as they are
	@$(ONE_THREAD) $(PY) site/build.py

browser-test: site      ## every page in a browser, at the width of a laptop and of a phone
	@$(PY) -m pip install -q -r site/browser.txt
	@$(call timed,browser,$(PY) -m pytest -q tests/browser)

# Sphinx, a theme, MathJax: for those who publish the pages, and so no part of the installation of a learner.
$(VENV)/.site: site/requirements.txt $(INSTALLED)
	@$(call timed,install,$(PY) -m pip install -q -r site/requirements.txt)
	@touch $@

# The stamp is written last: an install that broke off is tried again, a finished one never.
$(INSTALLED): requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "flashlab needs Python 3.11 or newer, and there is no '$(PYTHON)' here. Name yours: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "flashlab needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Name a newer one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' has no venv module. On Debian or Ubuntu: sudo apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "[make] installing requirements.txt: PyTorch and JupyterLab are gigabytes, this happens once"
	@$(call timed,install,$(PY) -m pip install -q -r requirements.txt && $(PY) -m pip install -q --no-deps -e .)
	@touch $@
