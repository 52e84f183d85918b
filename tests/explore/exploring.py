"""A model to explore, and its page, served for a test."""

import contextlib
import threading

from ennopt.convert import load_with_original
from ennopt.domain.reading import read_place
from ennopt.domain.where import Where
from ennopt.explore.server import Desk, Service
from ennopt.explore.subject import Subject

NAMES = ("cement", "water <b>", "plant_A", "plant_B")


def subject_of(path, data=None, target=None, domain=None):
    loaded = load_with_original(path)
    where = Where(domain=domain, data=data, target=target)
    return Subject(str(path), loaded, read_place(where, loaded.ensemble), data, target)


@contextlib.contextmanager
def serving(subject):
    service = Service(Desk(subject))
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        service.stop()
        thread.join()
