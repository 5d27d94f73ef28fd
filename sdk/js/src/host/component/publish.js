export { send, sendAll } from 'outbox:listener/publish@0.1.0';
