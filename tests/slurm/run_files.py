"""What a run has written to its folder."""
import json

COMPARED = ("step", "loss", "learning_rate", "gradient_norm", "tokens", "skipped_steps")


def metrics(folder):
    path = folder / "run/metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def events(folder, name):
    lines = (folder / "run/events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def numbers(folder):
    return [tuple(line[key] for key in COMPARED) for line in metrics(folder)]
