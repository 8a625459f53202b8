// The two interfaces that the page speaks, by the types of their OpenAPI documents.

import createClient, { type Middleware } from 'openapi-fetch';
import { session } from '../lib/session.svelte';
import type { components as AgentComponents, paths as AgentPaths } from './agent.gen';
import type { components as FleetComponents, paths as FleetPaths } from './fleet.gen';

export type Agent = AgentComponents['schemas'];
export type Fleet = FleetComponents['schemas'];

/** Header that shows a request to come from this page. */
export const csrfHeader = 'Sluice-CSRF';

const ours: Middleware = {
  onRequest({ request }) {
    if (request.method !== 'GET') request.headers.set(csrfHeader, session.current?.csrf ?? '');
    return request;
  },
};

function client<Paths extends object>(base: string) {
  const c = createClient<Paths, 'application/json'>({ baseUrl: base, credentials: 'same-origin' });
  c.use(ours);
  return c;
}

/** The fleet's controller. */
export const fleet = client<FleetPaths>('');

/** A host, which its agent answers for: this one, or one of the fleet. */
export class Host {
  readonly base: string;
  readonly namespace: string;
  readonly api: ReturnType<typeof client<AgentPaths>>;

  constructor(name = '', namespace = '') {
    this.base = name ? `/api/v1/hosts/${encodeURIComponent(name)}/agent` : '/agent';
    this.namespace = namespace || session.current?.namespace || '-';
    this.api = client<AgentPaths>(this.base);
  }

  /** What each operation has in its path. */
  get path() {
    return { namespace: this.namespace };
  }

  /** The address of an operation of the namespace, for what is streamed. */
  url(operation: string, query: Record<string, string | number | boolean | undefined> = {}): string {
    const q = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
      if (value !== undefined && value !== '' && value !== false) q.set(name, String(value));
    const text = q.toString();
    return `${this.base}/v1/namespaces/${encodeURIComponent(this.namespace)}/${operation}${text ? `?${text}` : ''}`;
  }
}

/** Why a request failed, in words. */
export class Failed extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly body?: unknown,
  ) {
    super(message);
  }
}

/** The data of an answer, or the failure that the server names. */
export async function data<T>(asked: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  let got;
  try {
    got = await asked;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Failed('The server does not answer.', 0);
  }
  if (!got.response.ok) {
    const said = got.error as { error?: string } | string | undefined;
    const text = typeof said === 'string' ? said : said?.error;
    throw new Failed(
      text || `${got.response.status} ${got.response.statusText}`,
      got.response.status,
      got.error,
    );
  }
  return got.data as T;
}
