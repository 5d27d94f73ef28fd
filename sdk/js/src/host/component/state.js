export { delete, get, set } from 'outbox:listener/state@0.1.0';
