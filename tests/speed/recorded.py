"""The files of recorded counts: CSV after a line that says when they were recorded, and after which commit."""
import csv
import datetime
import subprocess


def write(path, rows):
    commit = subprocess.run(["git", "-C", path.parent, "rev-parse", "--short=8", "HEAD"], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL).stdout.strip()
    with path.open("w", newline="") as file:
        file.write(f"# recorded on {datetime.date.today()}, after {commit or 'no commit'}\n")
        csv.writer(file, lineterminator="\n").writerows(rows)


def read(path):
    """Its rows, the names of the columns first."""
    with path.open(newline="") as file:
        return list(csv.reader(line for line in file if not line.startswith("#")))
