import * as outgoing from 'wasi:http/outgoing-handler@0.2.12';
import * as types from 'wasi:http/types@0.2.12';

import { sendOverWasi } from '../../wasi-http.js';

export const send = (request) => sendOverWasi({ outgoing, types }, request);
