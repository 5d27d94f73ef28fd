export { send } from 'outbox:listener/http@0.1.0';
