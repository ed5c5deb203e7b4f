"""Every number of a page, found again from a run's files with other tools than the page's."""

from __future__ import annotations

import csv
import io
import json
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
)

from obygaze_features.common.package import reference_json
from obygaze_models.intervals import ScoredClips, film_intervals

#: So many intervals are found again without what the run used.
FEW = 6


class Numbers(HTMLParser):
    """The marked numbers of a page: (key, value, what is shown)."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, float, str]] = []
        self._open: tuple[str, float] | None = None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        about = dict(attrs)
        key = about.get("data-key")
        if tag == "data":
            self._open = key, float(about["value"])

    def handle_data(self, data):
        if self._open:
            self.found.append((*self._open, data))
            self._open = None


class Folder:
    """A run's files, read with nothing of the report's."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.seed = folder, seed
        self.record = json.loads((folder / "run.json").read_text(encoding="utf-8"))

    @cached_property
    def clips(self):
        return {row["id"]: row for row in self._table("clips.csv")}

    @cached_property
    def explained(self):
        text = (self.folder / "explanations.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    @cached_property
    def said(self):
        """(model, test, run) -> ids, labels as numbers, probabilities [n] or [n, classes]."""
        found = {}
        for row in self._table("predictions.csv"):
            found.setdefault((row["model"], row["test"], int(row["fit"])), []).append(row)
        return {key: self._columns(key[1], rows) for key, rows in found.items()}

    def _table(self, name):
        with (self.folder / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def _columns(self, test, rows):
        classes = list(self.record["tests"][test]["classes"])
        ids = [row["id"] for row in rows]
        if len(classes) == 2:
            labels = np.array([int(row["label"]) for row in rows])
            return ids, labels, np.array([float(row["probability"]) for row in rows])
        labels = np.array([classes.index(row["label"]) for row in rows])
        columns = [[float(row[f"probability_{name}"]) for name in classes] for row in rows]
        return ids, labels, np.array(columns)

    def of(self, model, test):
        """Each run's columns."""
        return [of for (m, t, _), of in self.said.items() if (m, t) == (model, test)]

    def test(self, test):
        """Each clip's label in a test set."""
        return {
            one: label
            for (_, t, _), (ids, labels, _) in self.said.items()
            if t == test
            for one, label in zip(ids, labels.tolist(), strict=True)
        }

    def pooled(self, model):
        """Each clip's label and mean probability over runs; a test's clips count once a run."""
        by_clip = {}
        for (m, _, run), (ids, labels, said) in self.said.items():
            if m == model:
                for one, label, p in zip(ids, labels.tolist(), said, strict=True):
                    by_clip.setdefault(one, (label, {}))[1][run] = p
        return {
            one: (label, np.mean(list(of.values()), axis=0)) for one, (label, of) in by_clip.items()
        }


def scores(labels, said):
    """The shown scores, by scikit-learn."""
    if said.ndim == 2:
        called = said.argmax(axis=1)
        areas = [roc_auc_score(labels == one, said[:, one]) for one in range(said.shape[1])]
        return {
            "f1_macro": f1_score(labels, called, average="macro", zero_division=0),
            "f1_weighted": f1_score(labels, called, average="weighted", zero_division=0),
            "balanced_accuracy": balanced_accuracy_score(labels, called),
            "auroc": np.mean(areas),
        }
    called = (said > 0.5).astype(int)
    both = len(set(labels)) == 2
    return {
        "f1": f1_score(labels, called, zero_division=0),
        "f1_weighted": f1_score(labels, called, average="weighted", zero_division=0),
        "precision": precision_score(labels, called) if called.any() else None,
        "recall": recall_score(labels, called),
        "auroc": roc_auc_score(labels, said) if both else None,
        "average_precision": average_precision_score(labels, said) if both else None,
    }


def looped(runs, films, seed):
    """The middle 95% of the mean F1 over draws of films, draw by draw and clip by clip."""
    names = sorted({film for of in films for film in of})
    drawn = np.random.default_rng(seed).multinomial(
        len(names), np.full(len(names), 1 / len(names)), size=1000
    )
    means = []
    for draw in drawn:
        often = dict(zip(names, draw.tolist(), strict=True))
        top = bottom = 0.0
        for (_, labels, said), of in zip(runs, films, strict=True):
            found = missed = extra = clips = 0
            for label, p, film in zip(labels.tolist(), said.tolist(), of, strict=True):
                clips += often[film]
                if label and p > 0.5:
                    found += often[film]
                elif label:
                    missed += often[film]
                elif p > 0.5:
                    extra += often[film]
            if found or missed or extra:
                share = clips / len(labels)
                top += share * 2 * found / (2 * found + missed + extra)
                bottom += share
        means.append(top / bottom if bottom else np.nan)
    return dict(zip(("low", "high"), np.nanquantile(means, [0.025, 0.975]), strict=True))


def guess(share, name, metric):
    """F1 of one who calls clips positive with a fixed chance, in closed form."""
    recall = {"random": 0.5, "all positive": 1.0, "majority": float(share >= 0.5)}[name]

    def f1(precision, recall):
        return 2 * precision * recall / (precision + recall)

    of = f1(share, recall), f1(1 - share, 1 - recall)
    return of[0] if metric == "f1" else share * of[0] + (1 - share) * of[1]


class Oracle:
    """What each number should be."""

    def __init__(self, folders: list[Path], manifests: list[Path] | None = None) -> None:
        self.folders = [Folder(folder) for folder in folders]
        self.manifests = manifests or []
        self._intervals, self._scores, self._looped = {}, {}, 0

    def __call__(self, key: str) -> float:
        kind, *parts = (unquote(part) for part in key.split("/"))
        return getattr(self, kind.replace(" ", "_"))(*parts)

    def score(self, run, model, test, metric, what, *reference):
        folder = self.folders[int(run)]
        if reference:
            return self._published(folder, model, test, metric)["mean"]
        runs = folder.of(model, test)
        films = [[folder.clips[one]["film"] for one in ids] for ids, _, _ in runs]
        if what == "films":
            return len({film for of in films for film in of})
        if what in ("low", "high"):
            key = run, model, test
            if key not in self._intervals:
                if metric == "f1" and self._looped < FEW and len(runs) > 1:
                    self._looped += 1
                    return looped(runs, films, folder.record["intervals"]["seed"])[what]
                drawn = [
                    ScoredClips(of[1], of[2], film) for of, film in zip(runs, films, strict=True)
                ]
                seed = folder.record["intervals"]["seed"]
                self._intervals[key] = film_intervals(drawn, seed=seed)
            return self._intervals[key][metric][what == "high"]
        if (run, model, test) not in self._scores:
            self._scores[run, model, test] = [scores(labels, said) for _, labels, said in runs]
        values = [of[metric] for of in self._scores[run, model, test]]
        return {"mean": np.mean, "std": np.std}[what](values)

    def guess(self, run, test, name, metric):
        folder = self.folders[int(run)]
        labels = {r: of[1] for (_, t, r), of in folder.said.items() if t == test}
        return np.mean([guess(of.mean(), name, metric) for of in labels.values()])

    def test(self, run, test, what, *name):
        folder = self.folders[int(run)]
        labels = list(folder.test(test).values())
        positives = sum(labels)
        if what == "class":
            return labels.count(list(folder.record["tests"][test]["classes"]).index(name[0]))
        return {
            "clips": len(labels),
            "positives": positives,
            "share": positives / len(labels),
        }[what]

    def published(self, row, *parts):
        if row == "Table 4":
            film, *std = parts
            return reference_json("published.json")["table4"]["rows"][film][
                "std" if std else "mean"
            ]
        run, test, *std = parts
        return self._row(self.folders[int(run)], row, test)["std" if std else "mean"]

    def difference(self, row, run, model, test, metric):
        folder = self.folders[int(run)]
        ours = (
            self.score(run, model, test, metric, "mean")
            if folder.of(model, test)
            else self.guess(run, test, model, metric)
        )
        return ours - self._row(folder, row, test)["mean"]

    def _published(self, folder, model, test, metric):
        rows = {"mlp": "X-CLIP", "pcbm-tree": "PCBM-DT", "pcbm-logistic": "PCBM-LR"}
        average = reference_json("published.json")["table2"]["rows"][rows[model]]["average"]
        assert metric == {"weighted": "f1_weighted", "positive class": "f1"}[average]
        return self._row(folder, rows[model], test)

    def _row(self, folder, row, test):
        train = "".join(sorted(folder.record["experiment"]["train_negatives"]))
        tested = "".join(sorted(test.split(" vs ")[0].split("+")))
        rows = reference_json("published.json")["table2"]["rows"]
        return rows[row]["values"][f"{train}-S/{tested}-S"]

    def film(self, run, *parts):
        folder = self.folders[int(run)]
        if len(parts) == 2:
            film, what = parts
            if what == "equal":
                return np.mean([a == b for a, b in self._pairs(run, film)])
            levels = [row["level"] for row in folder.clips.values() if row["film"] == film]
            if what == "clips":
                return len(levels)
            positives = folder.record["experiment"]["positives"] or ["S"]
            return np.mean([level in positives for level in levels])
        if parts[1] == "tested":
            model, _, film = parts
            return sum(folder.clips[clip]["film"] == film for clip in folder.pooled(model))
        model, _, film, metric = parts
        of = {
            one: both
            for one, both in folder.pooled(model).items()
            if folder.clips[one]["film"] == film
        }
        labels, said = zip(*of.values(), strict=True)
        return f1_of(np.array(labels), np.array(said), metric)

    def concept(self, run, model, task, concept, what):
        folder = self.folders[int(run)]
        values, shown = [], {}
        for line in folder.explained:
            if (line["model"], line["task"]) != (model, task) or concept not in line["concepts"]:
                continue
            column = line["concepts"].index(concept)
            rows = [folder.clips[one] for one in line["ids"]]
            kept = [
                (r["level"] in ("HN", "S") and concept in r["concepts"].split("|"), v[column], r)
                for r, v in zip(rows, line["values"], strict=True)
                if r["level"] != "NS"
            ]
            shown |= {row["id"]: truth for truth, _, row in kept}
            truth, measured = [one[0] for one in kept], [one[1] for one in kept]
            if len(set(truth)) == 2:
                score = roc_auc_score if "auroc" in what else average_precision_score
                values.append(score(truth, measured))
        if what in ("positives", "negatives"):
            return list(shown.values()).count(what == "positives")
        return np.std(values) if what.endswith("_std") else np.mean(values)

    def marked(self, run, concept, level):
        clips = [r for r in self.folders[int(run)].clips.values() if r["level"] == level]
        return np.mean([concept in r["concepts"].split("|") for r in clips])

    def annotated(self, run, what, *name):
        rows = self.folders[int(run)].clips.values()
        if what == "all annotators":
            sets = self._annotators(run)
            return sum(all(of.get(row["id"]) == "S" for of in sets) for row in rows)
        if what == "clips":
            return len(rows)
        if what == "level":
            return sum(row["level"] == name[0] for row in rows)
        return sum(name[0] in row["concepts"].split("|") for row in rows)

    def _annotators(self, run):
        """Each annotator's levels by clip, from the manifest's own tables."""
        paths = sorted((self.manifests[int(run)] / "labels").glob("annotator*.csv"))
        tables = [csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))) for path in paths]
        return [{row["id"]: row["level"] for row in table} for table in tables]

    def human(self, run, test):
        negatives, positives = (name.split("+") for name in test.split(" vs "))
        first, second = self._annotators(run)
        task = {*negatives, *positives}
        both = [one for one in first if {first[one], second.get(one)} <= task]
        truth, called = ([of[one] in positives for one in both] for of in (second, first))
        return f1_score(truth, called)

    def agreement(self, first, second, what, *levels):
        pairs = [(a, b) for a, b in self._pairs(0)]
        if what == "both":
            return len(pairs)
        if what == "equal":
            return np.mean([a == b for a, b in pairs])
        if what == "clips":
            return pairs.count(levels)
        name, level = levels
        return sum(pair[name == second] == level for pair in pairs)

    def _pairs(self, run, film=""):
        first, second = self._annotators(run)
        return [(first[one], second[one]) for one in first if one in second and film in one]

    def errors(self, run, model, film, factor=None):
        folder = self.folders[int(run)]
        pooled = folder.pooled(model)
        if factor is None:
            wrong = [
                (p > 0.5) != label if np.ndim(p) == 0 else p.argmax() != label
                for label, p in pooled.values()
            ]
            return {"clips": len(wrong), "wrong": sum(wrong)}[film]
        rows = [
            (folder.clips[one], (p > 0.5) != label if np.ndim(p) == 0 else p.argmax() != label)
            for one, (label, p) in pooled.items()
            if film in ("all", folder.clips[one]["film"])
        ]
        everywhere = [folder.clips[one] for one in pooled]
        concepts = sorted({c for r in everywhere for c in r["concepts"].split("|") if c})
        there = {r["level"] for r in everywhere}
        levels = [code for code in folder.record["manifest"]["levels"] if code in there]
        names = [*concepts, *levels]
        marks = np.array(
            [[n in r["concepts"].split("|") or n == r["level"] for n in names] for r, _ in rows]
        )
        varies = marks.any(axis=0) & ~marks.all(axis=0)
        model = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000)
        model.fit(marks[:, varies], [wrong for _, wrong in rows])
        return dict(zip(np.array(names)[varies], model.coef_[0], strict=True))[factor]

    def leak(self, run, test, what, *end):
        leaks = [one for one in self.folders[int(run)].record["leaks"] if one["test"] == test]
        if what == "clips":
            return len(self.folders[int(run)].test(test))
        return {"least": min, "most": max}[end[0]](one[what] for one in leaks)


def f1_of(labels, said, metric):
    """F1 of few clips, maybe of one class."""
    called = said.argmax(axis=1) if said.ndim == 2 else (said > 0.5).astype(int)
    average = {"f1": "binary", "f1_weighted": "weighted", "f1_macro": "macro"}[metric]
    return f1_score(labels, called, average=average, zero_division=0)
