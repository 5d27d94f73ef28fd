export { remainingMs } from 'outbox:listener/call@0.1.0';
