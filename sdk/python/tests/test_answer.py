import unittest
from datetime import timedelta

from outbox_sdk import Dead, Done, Failure, FailureKind, RefusalKind, Refused, RetryAfter, dead, done, retry_after
from outbox_sdk.answer import failure_from


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return raised


class Answers(unittest.TestCase):
    def test_answers_are_values(self) -> None:
        self.assertEqual(done(), Done())
        self.assertEqual(retry_after(1.5), RetryAfter(1500))
        self.assertEqual(retry_after(timedelta(minutes=1)), RetryAfter(60_000))
        self.assertEqual(dead("why"), Dead("why"))
        self.assertEqual(dead(), Dead(None))

    def test_a_delay_is_rounded_up_to_a_millisecond(self) -> None:
        self.assertEqual(retry_after(0.0001), RetryAfter(1))
        self.assertEqual(retry_after(0.1 + 0.2), RetryAfter(300))

    def test_a_delay_is_cut_to_the_24_hours_of_the_contract(self) -> None:
        self.assertEqual(retry_after(timedelta(days=400)), RetryAfter(86_400_000))
        self.assertEqual(Failure.retryable_after(1e300, "later").delay_ms, 86_400_000)

    def test_a_delay_that_is_none_is_refused(self) -> None:
        for delay in (-1, float("nan"), timedelta(seconds=-1)):
            with self.assertRaisesRegex(ValueError, "a delay is zero or more seconds"):
                retry_after(delay)


class Failures(unittest.TestCase):
    def test_each_kind_says_what_follows(self) -> None:
        self.assertEqual(Failure("no").kind, FailureKind.RETRYABLE)
        self.assertEqual(Failure.retryable("no").kind, FailureKind.RETRYABLE)
        self.assertEqual(Failure.retryable_after(2, "no").delay_ms, 2000)
        self.assertEqual(Failure.unrecoverable("no").kind, FailureKind.UNRECOVERABLE)

    def test_failures_that_the_host_cannot_tell_apart_are_equal(self) -> None:
        self.assertEqual(Failure.retryable("no", code="x"), Failure.retryable("no", code="x"))
        self.assertNotEqual(Failure.retryable("no", code="x"), Failure.retryable("no"))
        self.assertNotEqual(Failure.retryable("no"), Failure.unrecoverable("no"))

    def test_a_code_that_the_contract_forbids_is_refused_at_once(self) -> None:
        for code in ("", "Payment", "a_b", "x" * 65, "ä"):
            with self.assertRaisesRegex(ValueError, "1 to 64 of a-z"):
                Failure.retryable("no", code=code)

    def test_a_delay_goes_with_retryable_after_alone(self) -> None:
        with self.assertRaises(ValueError):
            Failure("no", delay_ms=5)
        with self.assertRaises(ValueError):
            Failure("no", kind=FailureKind.RETRYABLE_AFTER)


class OtherExceptions(unittest.TestCase):
    def test_any_exception_becomes_a_retryable_failure_with_its_type_and_text(self) -> None:
        failure = failure_from(caught(ZeroDivisionError("division by zero")))

        self.assertEqual(failure.kind, FailureKind.RETRYABLE)
        self.assertEqual(failure.message, "ZeroDivisionError: division by zero")
        self.assertIsNone(failure.code)

    def test_it_says_where_in_the_plugin_it_was_raised(self) -> None:
        failure = failure_from(caught(KeyError("k")))

        ((key, place),) = failure.attributes
        self.assertEqual(key, "at")
        self.assertRegex(place, r"^test_answer\.py:\d+ in caught$")

    def test_its_causes_are_in_the_message(self) -> None:
        try:
            try:
                try:
                    raise OSError("no route to host")
                except OSError as error:
                    raise ConnectionError("connecting") from error
            except ConnectionError:
                raise RuntimeError  # noqa: B904  the context alone must do
        except RuntimeError as error:
            failure = failure_from(error)

        self.assertEqual(
            failure.message, "RuntimeError; caused by ConnectionError: connecting; caused by OSError: no route to host"
        )

    def test_a_cause_that_was_hidden_on_purpose_stays_hidden(self) -> None:
        try:
            try:
                raise OSError("a path that is nobody's business")
            except OSError:
                raise ValueError("no") from None
        except ValueError as error:
            self.assertEqual(failure_from(error).message, "ValueError: no")

    def test_causes_in_a_circle_end(self) -> None:
        first, second = ValueError("a"), ValueError("b")
        first.__cause__, second.__cause__ = second, first

        self.assertEqual(failure_from(first).message, "ValueError: a; caused by ValueError: b")

    def test_groups_and_notes_are_told(self) -> None:
        inner = KeyError("k")
        inner.add_note("while reading the order")
        failure = failure_from(ExceptionGroup("two things", [inner, ValueError("v")]))

        self.assertEqual(
            failure.message,
            "ExceptionGroup: two things (2 sub-exceptions) [KeyError: 'k' (while reading the order) | ValueError: v]",
        )

    def test_an_exception_whose_text_fails_is_told_all_the_same(self) -> None:
        class Broken(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        self.assertIn("Broken: (its text cannot be had)", failure_from(Broken()).message)

    def test_a_failure_keeps_what_it_says_and_adds_the_cause_that_was_named(self) -> None:
        try:
            raise Failure.retryable_after(5, "sending the mail", code="mail") from OSError("refused")
        except Failure as error:
            failure = failure_from(error)

        self.assertEqual(failure.message, "sending the mail; caused by OSError: refused")
        self.assertEqual((failure.kind, failure.delay_ms, failure.code), (FailureKind.RETRYABLE_AFTER, 5000, "mail"))

    def test_a_refusal_becomes_a_failure_with_its_kind_as_code(self) -> None:
        failure = failure_from(Refused("emit", RefusalKind.NOT_GRANTED, "add `emit = true` to x.toml"))

        self.assertEqual(failure.kind, FailureKind.RETRYABLE)
        self.assertEqual(failure.code, "not-granted")
        self.assertEqual(failure.message, "the host refused emit (not-granted): add `emit = true` to x.toml")

    def test_a_request_that_is_wrong_in_itself_is_not_tried_again(self) -> None:
        failure = failure_from(Refused("state.set", RefusalKind.INVALID, "the key is empty"))

        self.assertEqual((failure.kind, failure.code), (FailureKind.UNRECOVERABLE, "invalid"))


if __name__ == "__main__":
    unittest.main()
