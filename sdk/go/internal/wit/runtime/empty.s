// This file lets functions without a body be declared: sbrk is the Go runtime's.
