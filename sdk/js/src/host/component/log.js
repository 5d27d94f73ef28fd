export { maxLevel, write } from 'outbox:listener/log@0.1.0';
