import threading
import time

from histolumen.view.cache import BoundedCache


def test_the_least_recently_used_values_are_dropped():
    cache = BoundedCache(30, len)
    for key in "abc":
        cache.put(key, key * 10)
    assert cache.get("a")
    cache.put("d", "d" * 10)
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]


def test_a_value_larger_than_the_cache_is_kept_alone():
    cache = BoundedCache(5, len)
    cache.put("small", "1234")
    cache.put("large", "1234567")
    assert cache.get("small") is None
    assert cache.get("large")


def test_threads_make_a_value_once():
    cache, made = BoundedCache(100, len), []

    def make():
        time.sleep(0.05)
        made.append(1)
        return "value"

    threads = [threading.Thread(target=cache.get_or_make, args=("key", make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_a_replaced_value_is_counted_once():
    cache = BoundedCache(20, len)
    for _ in range(10):
        cache.put("a", "x" * 10)
    cache.put("b", "y" * 10)
    assert cache.get("a")
    cache.remove("a")
    assert cache.get("a") is None
