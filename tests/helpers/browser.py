# SPDX-License-Identifier: GPL-2.0-only
"""A page in a real browser: headless Chromium, driven over WebDriver."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

# A host that has other things to do.
PATIENCE = 20.0

Colour = tuple[int, int, int, int]


class Browser:
    """A window, with all that its page has said and asked for."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, fragment: str = "") -> None:
        """Loads a page anew, and waits for its picture."""
        self.driver.get("about:blank")
        self.said(), self.asked()
        self.driver.get(f"file://{page}{fragment}")
        self.wait("return document.getElementById('frame').dataset.drawn")

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str) -> Any:
        """Waits until a script returns something that is true."""
        return WebDriverWait(self.driver, PATIENCE, 0.02).until(lambda driver: driver.execute_script(script))

    def frame(self) -> None:
        """Waits until all that was asked for is drawn."""
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def find(self, selector: str) -> WebElement:
        """The first element of a CSS selector."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """Its text."""
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def key(self, *keys: str) -> None:
        """Types, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()
        self.frame()

    def click(self, selector: str) -> None:
        """Clicks an element."""
        self.find(selector).click()
        self.frame()

    def hover(self, va: int) -> dict[str, str]:
        """Moves the pointer to a page of the picture; what is said of it, by name."""
        box = self.place(va)
        x, y = int(box["x"] + box["width"] / 2), int(box["y"] + box["height"] / 2)
        actions = ActionChains(self.driver)
        actions.w3c_actions.pointer_action.move_to_location(x, y)
        actions.perform()
        self.frame()
        return self.tip()

    def tip(self) -> dict[str, str]:
        """What is said of a page just now; nothing where nothing is."""
        script = """const tip = document.getElementById('tip');
            const names = tip.hidden ? [] : [...tip.querySelectorAll('dt')];
            return names.map((it) => [it.textContent, it.nextSibling.textContent])"""
        return dict(self.run(script))

    def place(self, va: int) -> dict[str, float]:
        """Where a page's cell is in the window, scrolled to where it can be seen."""
        self.run("document.getElementById('frame').scrollIntoView({block: 'start', behavior: 'instant'})")
        found = self.run("return folioscope.where(arguments[0])", hex(va))
        assert found, f"{va:#x} is not in the picture"
        return found

    def cells(self, vas: list[int]) -> list[Colour]:
        """The colour in the middle of the cell of each page; all of them are to be seen at once."""
        self.place(vas[0])
        script = """const canvas = document.getElementById('canvas'), box = canvas.getBoundingClientRect();
            const context = canvas.getContext('2d'), ratio = devicePixelRatio;
            return arguments[0].map((va) => {
                const cell = folioscope.where(va);
                const [x, y] = [cell.x + cell.width / 2 - box.left, cell.y + cell.height / 2 - box.top];
                return [...context.getImageData(x * ratio, y * ratio, 1, 1).data];
            })"""
        found = [(red, green, blue, alpha) for red, green, blue, alpha in self.run(script, [hex(va) for va in vas])]
        assert all(alpha for *_, alpha in found), "a page is not drawn"
        return found

    def cell(self, va: int) -> Colour:
        """The same for one."""
        return self.cells([va])[0]

    def colour(self, name: str) -> Colour:
        """A colour of the style sheet."""
        script = """const context = document.createElement('canvas').getContext('2d');
            context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--' + arguments[0]);
            context.fillRect(0, 0, 1, 1);
            return [...context.getImageData(0, 0, 1, 1).data]"""
        red, green, blue, alpha = self.run(script, name)
        return (red, green, blue, alpha)

    def dark(self, on: bool) -> None:
        """Whether the user prefers dark pages."""
        value = "dark" if on else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.frame()

    def said(self) -> list[str]:
        """What came to the console since this was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def asked(self) -> list[str]:
        """What was asked of files and of the network since this was last asked."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with one window, which ends with the block."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
    # The page is our own, and in containers there may be no place for a sandbox.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1500,1200")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(shutil.which("chromedriver") or "/usr/bin/chromedriver", log_output=os.devnull)
    driver = Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
