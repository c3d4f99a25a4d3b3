"""Drops files onto a window as a file manager does: the source's side of the XDND protocol, version 5
(https://www.freedesktop.org/wiki/Specifications/XDND/)."""
import pathlib
import select
import time

import Xlib.display
import Xlib.X
from Xlib.protocol import event


class Source:
    def __init__(self, display, target, paths):
        """`display` is its name, `target` the window's number, and `paths` has the files."""
        self.display = Xlib.display.Display(display)
        self.target = self.display.create_resource_object("window", target)
        self.uris = "".join(pathlib.Path(path).resolve().as_uri() + "\r\n" for path in paths).encode()
        self.window = self.display.screen().root.create_window(0, 0, 1, 1, 0, Xlib.X.CopyFromParent)

    def atom(self, name):
        return self.display.intern_atom(name)

    def send(self, kind, *values):
        data = [self.window.id, *values] + [0] * (4 - len(values))
        self.target.send_event(event.ClientMessage(window=self.target, client_type=self.atom(kind), data=(32, data)))
        self.display.flush()

    def answer_request(self, request):
        assert request.target == self.atom("text/uri-list"), "it asks for something that was not offered"
        request.requestor.change_property(request.property, request.target, 8, self.uris)
        request.requestor.send_event(event.SelectionNotify(time=request.time, requestor=request.requestor, selection=request.selection,
                                                           target=request.target, property=request.property))
        self.display.flush()

    def wait_for(self, kind, seconds=10):
        """Returns the data of the target's message; hands over the files while it waits."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.display.pending_events() == 0:
                select.select([self.display], [], [], 0.1)
                continue
            got = self.display.next_event()
            if got.type == Xlib.X.SelectionRequest:
                self.answer_request(got)
            elif got.type == Xlib.X.ClientMessage and got.client_type == self.atom(kind):
                return got.data[1]
        raise AssertionError(f"the window sends no {kind}")

    def drop(self, x, y):
        """`x` and `y` are places on the screen."""
        self.window.set_selection_owner(self.atom("XdndSelection"), Xlib.X.CurrentTime)
        self.send("XdndEnter", 5 << 24, self.atom("text/uri-list"))
        self.send("XdndPosition", 0, x << 16 | y, Xlib.X.CurrentTime, self.atom("XdndActionCopy"))
        assert self.wait_for("XdndStatus")[1] & 1, "the window does not accept the files"
        self.send("XdndDrop", 0, Xlib.X.CurrentTime)
        assert self.wait_for("XdndFinished")[1] != 0, "the window did not take the files"  # GLFW puts the length there
        self.display.close()
