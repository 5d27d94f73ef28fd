import unittest

from outbox_sdk import Answer, Done, Event, Failure, FailureKind, Route, dead, done, emit, retry_after, state, testing
from outbox_sdk.plugin import Plugin


class Plugins(unittest.TestCase):
    def setUp(self) -> None:
        self.plugin = Plugin()
        self.host = testing.FakeHost(plugin=self.plugin)

    def deliver(self, event_type: str = "B") -> object:
        return self.host.deliver(testing.event("A", event_type))

    def test_an_event_finds_its_function(self) -> None:
        @self.plugin.listener("A", "B")
        def b(event: Event) -> Answer:
            return dead(event.route)

        @self.plugin.listener("A", "C")
        @self.plugin.listener("A", "D")
        def c_and_d(event: Event) -> Answer:
            return retry_after(1) if event.route.event_type == "C" else None

        self.assertEqual(self.deliver("B"), dead("A/B"))
        self.assertEqual(self.deliver("C"), retry_after(1))
        self.assertEqual(self.deliver("D"), done())
        self.assertEqual(self.plugin.routes(), [Route("A", "B"), Route("A", "D"), Route("A", "C")])

    def test_an_unknown_route_is_unrecoverable(self) -> None:
        self.assertEqual(self.deliver("Unheard"), Failure.unrecoverable("this plugin does not answer A/Unheard"))

    def test_whatever_a_listener_raises_is_a_failure(self) -> None:
        for error in (ValueError("v"), SystemExit(3), AssertionError(), MemoryError(), RecursionError("deep")):
            plugin = Plugin()

            @plugin.listener("A", "B")
            def b(event: Event, error: BaseException = error) -> Answer:
                raise error

            failure = testing.FakeHost(plugin=plugin).deliver(testing.event("A", "B"))
            assert isinstance(failure, Failure)
            self.assertEqual(failure.kind, FailureKind.RETRYABLE)
            self.assertTrue(failure.message.startswith(type(error).__name__), failure.message)

    def test_the_traceback_of_an_exception_goes_to_the_log(self) -> None:
        @self.plugin.listener("A", "B")
        def b(event: Event) -> Answer:
            raise ValueError("v")

        self.deliver()

        ((level, _, fields),) = self.host.lines
        self.assertEqual(level.name, "DEBUG")
        self.assertIn("ValueError: v", fields["traceback"])

    def test_an_answer_that_is_none_is_a_failure_that_names_the_function(self) -> None:
        @self.plugin.listener("A", "B")
        def b(event: Event) -> Answer:
            return True  # type: ignore[return-value]

        failure = self.deliver()

        assert isinstance(failure, Failure)
        self.assertRegex(failure.message, r"TypeError: .*\.b returned bool; a listener returns None, done\(\)")

    def test_a_route_has_one_function(self) -> None:
        @self.plugin.listener("A", "B")
        def one(event: Event) -> Answer:
            return None

        with self.assertRaisesRegex(ValueError, "A/B is answered by .*one already, so .*two cannot"):

            @self.plugin.batch_listener("A", "B")
            def two(events: list[Event]) -> None:
                return None

    def test_an_async_function_is_refused_at_once(self) -> None:
        with self.assertRaisesRegex(TypeError, "is async; a listener is an ordinary function"):

            @self.plugin.listener("A", "B")  # type: ignore[type-var]
            async def b(event: Event) -> Answer:
                return None


class Batches(unittest.TestCase):
    def setUp(self) -> None:
        self.plugin = Plugin()
        self.host = testing.FakeHost(plugin=self.plugin)
        self.seen: list[list[str]] = []

    def events(self, *types: str) -> list[Event]:
        return [testing.event("A", event_type, id=f"{index}") for index, event_type in enumerate(types)]

    def test_events_of_one_route_come_together_and_answers_stay_in_order(self) -> None:
        @self.plugin.batch_listener("A", "Many")
        def many(events: list[Event]) -> list[Answer]:
            self.seen.append([event.id for event in events])
            return [dead(event.id) for event in events]

        @self.plugin.listener("A", "One")
        def one(event: Event) -> Answer:
            return retry_after(1)

        answers = self.host.deliver_all(self.events("Many", "One", "Many", "Unheard"))

        self.assertEqual(answers[:3], [dead("0"), retry_after(1), dead("2")])
        self.assertIsInstance(answers[3], Failure)
        self.assertEqual(self.seen, [["0", "2"]])

    def test_a_single_delivery_is_a_list_of_one(self) -> None:
        @self.plugin.batch_listener("A", "Many")
        def many(events: list[Event]) -> None:
            self.seen.append([event.id for event in events])

        self.assertEqual(self.host.deliver(testing.event("A", "Many", id="x")), Done())
        self.assertEqual(self.seen, [["x"]])

    def test_too_few_answers_fail_every_event(self) -> None:
        @self.plugin.batch_listener("A", "Many")
        def many(events: list[Event]) -> list[Answer]:
            return [done()]

        for answer in self.host.deliver_all(self.events("Many", "Many")):
            assert isinstance(answer, Failure)
            self.assertIn("returned 1 answers to 2 events", answer.message)

    def test_one_failing_event_touches_no_other(self) -> None:
        @self.plugin.listener("A", "One")
        def one(event: Event) -> Answer:
            if event.id == "1":
                raise KeyError("k")
            return None

        answers = self.host.deliver_all(self.events("One", "One", "One"))

        self.assertEqual([type(answer) for answer in answers], [Done, Failure, Done])


class Settings(unittest.TestCase):
    def test_a_complaint_about_the_settings_is_told_without_its_type(self) -> None:
        plugin = Plugin()

        @plugin.check_settings
        def check() -> None:
            raise ValueError("endpoint must be an https address")

        complaint = testing.FakeHost(plugin=plugin).check_settings()
        self.assertEqual(complaint, "endpoint must be an https address")

    def test_no_check_is_no_complaint(self) -> None:
        self.assertIsNone(testing.FakeHost(plugin=Plugin()).check_settings())


class TheFakeHost(unittest.TestCase):
    def test_a_failure_undoes_what_was_written_and_emitted(self) -> None:
        plugin = Plugin()
        host = testing.FakeHost(plugin=plugin, state={"k": b"1"})

        @plugin.listener("A", "B")
        def b(event: Event) -> Answer:
            state.set("k", b"2")
            emit("C", "D")
            if event.attempt == 1:
                raise OSError
            return None

        host.deliver(testing.event("A", "B", attempt=1))
        self.assertEqual((host.state, host.emitted), ({"k": b"1"}, []))

        host.deliver(testing.event("A", "B", attempt=2))
        self.assertEqual((host.state, len(host.emitted)), ({"k": b"2"}, 1))


if __name__ == "__main__":
    unittest.main()
