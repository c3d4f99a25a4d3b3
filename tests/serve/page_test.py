#!/usr/bin/env python3
"""page_test.py TENON SOURCE: the page at "/" in Debian's Chromium. Skips where it, its driver or selenium is missing."""
import os
import shutil
import sys
import tempfile

from server import Server, make_model

try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError as e:
    print(f"Skipped: {e}")
    sys.exit(77)


def browser(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
                 f"--user-data-dir={folder}/profile"]:
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def main():
    tenon, source = sys.argv[1:]
    for program in ["chromium", "chromedriver"]:
        if not shutil.which(program):
            print(f"Skipped: {program} is not installed")
            return 77
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        with Server(tenon, make_model(source, folder), ["kv_cache.capacity=2048"],
                    ["--api-key", "secret", "--served-model-name", "tiny <b>"]) as server:
            headers = {"Authorization": "Bearer secret"}
            status, _, expected = server.ask("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 20}, headers)
            assert status == 200, expected
            driver = browser(folder)
            try:
                driver.get(server.url + "/")
                wait = WebDriverWait(driver, 120)
                find = lambda name: driver.find_element(By.ID, name)
                ended = lambda _: find("send").is_enabled() and driver.find_elements(By.CSS_SELECTOR, ".assistant, .error")
                find("prompt").send_keys("Hello")
                find("send").click()
                wait.until(ended)
                errors = [e.text for e in driver.find_elements(By.CLASS_NAME, "error")]
                assert len(errors) == 1 and "API key" in errors[0], errors  # none was given
                find("reset").click()
                for name, value in [("key", "secret"), ("temperature", "0"), ("tokens", "20")]:
                    find(name).clear()
                    find(name).send_keys(value)
                find("prompt").send_keys("Hello\n")
                wait.until(ended)
                errors = [e.text for e in driver.find_elements(By.CLASS_NAME, "error")]
                assert not errors, errors
                shown = driver.execute_script("return document.querySelector('.assistant').textContent")
                content = expected["choices"][0]["message"]["content"]
                assert shown == content, (shown, content)
                wait.until(lambda _: find("answered").text == "2" and find("running").text == "0")
                assert find("model").text == "tiny <b>", find("model").text
                severe = [line for line in driver.get_log("browser") if line["level"] == "SEVERE"
                          and "favicon" not in line["message"] and "401" not in line["message"]]
                assert not severe, severe
            finally:
                driver.quit()
            assert server.end() == 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
