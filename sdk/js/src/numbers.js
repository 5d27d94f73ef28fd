// Numbers on their way to the host and from it. Measured with componentize-qjs 0.4.5 and StarlingMonkey (componentize-js 0.22):
//   u32 in:  QuickJS makes a negative number of 2147483648 and above.
//   u32 out: QuickJS makes 2147483647 of anything above, StarlingMonkey takes it modulo 2^32; QuickJS traps on a BigInt.
//   u64 in:  a Number in QuickJS, a BigInt in StarlingMonkey.

/** The most milliseconds by which the host puts an event off. */
export const MOST_DELAY_MS = 24 * 60 * 60 * 1000;

/** The largest number that both engines hand to the host unchanged as a u32. */
export const LARGEST = 2 ** 31 - 1;

/** A u64 of the host; exact up to 2^53. */
export function fromU64(value) {
  return Number(value);
}

/** A u32 of the host. */
export function fromU32(value) {
  return value >>> 0;
}

/** Whole milliseconds for the host, or a RangeError. */
export function milliseconds(what, value, most = LARGEST) {
  const number = Number(value);
  if ((typeof value !== 'number' && typeof value !== 'bigint') || Number.isNaN(number) || number < 0) {
    throw new RangeError(`${what} must be a number of milliseconds, 0 or more, not ${typeof value === 'string' ? `"${value}"` : String(value)}`);
  }
  if (number > most) throw new RangeError(`${what} is ${number} milliseconds; at most ${most} are possible`);
  return Math.ceil(number);
}
