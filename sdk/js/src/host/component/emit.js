export { emit } from 'outbox:listener/emit@0.1.0';
