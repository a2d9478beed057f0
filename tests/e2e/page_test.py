"""The page at / in Debian's Chromium: it loads, follows the load, chats, and the console stays clean. With BULKHEAD_SCREENSHOTS=DIR it
also leaves pictures of itself there."""
import itertools
import os
import re
import shutil
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = None
MISSING = [name for name in ("chromium", "chromedriver") if not shutil.which(name)] + ([] if webdriver else ["selenium"])
SCREENSHOTS = os.environ.get("BULKHEAD_SCREENSHOTS")


class Load:
    """Sequences that run until the end of the block: as soon as one has ended another begins."""

    def __init__(self, served, sequences):
        self.served, self.over = served, threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(sequences)]

    def _run(self, i):
        for number in itertools.count():
            call = self.served.generation.GenerateStream(group.long_request(f"load-{i}-{number}", 1900))
            for _ in call:
                if self.over.is_set():
                    call.cancel()
                    return

    def __enter__(self):
        for thread in self.threads:
            thread.start()
            time.sleep(0.1)

    def __exit__(self, *error):
        self.over.set()
        for thread in self.threads:
            thread.join()


@unittest.skipIf(MISSING, f"{', '.join(MISSING)} not found: apt install chromium chromium-driver python3-selenium")
class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = group.Group("--http-port", 0, "--served-model-name", "sample")

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()

    def setUp(self):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,1000"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.browser = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        self.addCleanup(self.browser.quit)
        self.browser.set_page_load_timeout(group.LIMIT_S)

    def open(self):
        self.browser.get(f"http://{self.group.http_target}/")
        self.wait(lambda: self.text("phase") == "serving")

    def text(self, name):
        return self.browser.find_element(By.ID, name).text

    def number(self, name):
        return float(re.sub(r"[^0-9.]", "", self.text(name)) or 0)

    def wait(self, done):
        limit = time.monotonic() + group.LIMIT_S
        while not done():
            self.assertLess(time.monotonic(), limit, self.browser.find_element(By.TAG_NAME, "body").text)
            time.sleep(0.2)

    def kv_in_use(self, rank):
        """Of the rank's bar, in per cent, as it is drawn."""
        return self.browser.execute_script(
            "return parseFloat(document.querySelectorAll('#rank' + arguments[0] + ' .bar')[1].children[0].style.width)", rank)

    def shoot(self, name):
        if SCREENSHOTS:
            self.browser.save_screenshot(os.path.join(SCREENSHOTS, name + ".png"))

    def media(self, scheme, width, height):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})

    def check_console(self):
        self.assertEqual(self.browser.get_log("browser"), [])
        urls = self.browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
        origin = f"http://{self.group.http_target}/"
        self.assertEqual([url for url in urls if not url.startswith((origin, "data:"))], [])

    def ask(self, text):
        prompt = self.browser.find_element(By.ID, "prompt")
        prompt.send_keys(text, Keys.ENTER)
        self.wait(lambda: self.browser.find_element(By.ID, "send").is_enabled() and not prompt.get_attribute("value"))

    def test_the_page_shows_every_rank_and_follows_the_load(self):
        self.open()
        self.assertIn("sample", self.text("model"))
        bars = self.browser.find_elements(By.CSS_SELECTOR, "#bars .rank")
        self.assertEqual(len(bars), group.RANKS)
        self.assertEqual(len([bar for bar in bars if "binds: kv" in bar.text]), 1)
        table = self.group.control.GetRankTable(group.pb.GetRankTableRequest(), timeout=group.LIMIT_S)
        self.assertIn(f"Rank {table.binding_rank} binds, with {table.binding_term}", self.text("binding"))
        rows = self.browser.find_elements(By.CSS_SELECTOR, "#ranks tr")
        self.assertEqual(len(rows), group.RANKS + 1)
        curve = self.text("curve")
        self.assertIn("2,048 tokens", curve)
        self.assertIn(f"\n{table.num_kv_blocks // (2048 // table.block_size)} (all slots)", curve)
        self.assertEqual([self.kv_in_use(rank) for rank in range(group.RANKS)], [0] * group.RANKS)
        with Load(self.group, 3):
            self.wait(lambda: self.number("running") == 3)
            self.wait(lambda: all(self.kv_in_use(rank) > 1 for rank in range(group.RANKS)))
            self.wait(lambda: self.number("rate") > 0 and self.text("ttft") != "-")
            self.wait(lambda: self.browser.find_elements(By.CSS_SELECTOR, "#rate_chart polyline"))
        self.wait(lambda: self.number("running") == 0 and self.kv_in_use(0) == 0)
        self.check_console()

    def test_the_chat_streams_an_answer_and_inserts_it_as_text(self):
        self.open()
        self.browser.execute_script("document.getElementById('temperature').value = 0; document.getElementById('max_tokens').value = 24")
        self.ask("Tell me a story.")
        messages = [one.text for one in self.browser.find_elements(By.CSS_SELECTOR, "#messages .message")]
        self.assertEqual(len(messages), 2, messages)
        self.assertEqual(messages[0], "You\nTell me a story.")
        self.assertGreater(len(messages[1]), 30)
        self.assertIn("24 tokens, first after", self.text("timing"))
        self.ask("<img src=x onerror=alert(1)> & <b>bold</b>")
        self.assertEqual(self.browser.find_elements(By.CSS_SELECTOR, "#messages img, #messages .text b"), [])
        self.assertIn("<b>bold</b>", self.browser.find_elements(By.CSS_SELECTOR, "#messages .message")[2].text)
        with Load(self.group, 8):  # every slot: the chat waits, and is taken back
            self.browser.find_element(By.ID, "prompt").send_keys("Go on.", Keys.ENTER)
            self.wait(lambda: self.group.load().num_requests_waiting > 0)
            self.browser.find_element(By.ID, "stop").click()
            self.wait(lambda: self.browser.find_element(By.ID, "send").is_enabled())
            self.assertEqual(self.text("timing"), "stopped")
        self.group.wait_until_idle()
        self.check_console()

    def test_a_refusal_is_told_in_the_servers_words(self):
        self.open()
        self.browser.execute_script("document.getElementById('max_tokens').value = 100000")
        self.browser.find_element(By.ID, "prompt").send_keys("a", Keys.ENTER)
        self.wait(lambda: self.browser.find_elements(By.CSS_SELECTOR, "#messages .error"))
        self.assertIn("max_model_len", self.browser.find_element(By.CSS_SELECTOR, "#messages .error").text)

    def test_it_fits_a_phone_in_light_and_dark(self):
        self.open()
        with Load(self.group, 6):
            self.browser.execute_script("document.getElementById('max_tokens').value = 40")
            self.ask("Tell me a story.")
            self.wait(lambda: self.kv_in_use(0) > 5)
            if SCREENSHOTS:
                time.sleep(100)  # for the charts
            colors = {}
            for scheme in ("light", "dark"):
                self.media(scheme, 1100, 1330)
                self.browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
                colors[scheme] = self.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
                self.shoot(f"page-{scheme}")
                self.media(scheme, 380, 900)
                self.assertLessEqual(self.browser.execute_script("return document.documentElement.scrollWidth"), 380)
                self.shoot(f"page-phone-{scheme}")
        self.assertNotEqual(colors["light"], colors["dark"])
        self.check_console()


if __name__ == "__main__":
    unittest.main()
