export { get, getAll, secret } from 'outbox:listener/settings@0.1.0';
