// What explain answers, where its OpenAPI document leaves the shapes of parts open.

import type { Agent } from '../api/client';

interface Line {
  file: string;
  line: number;
  column: number;
  text: string;
}
interface Entry {
  sets: string[];
  out: boolean;
  line: Line | null;
  range: string;
  url?: string;
  country?: string;
  'country-name'?: string;
  added?: boolean;
  until?: string;
}
interface Parts {
  line: Line | null;
  excerpt?: { place: string; line: string; marker?: string };
  becomes: { ends: string; out?: string } | null;
  ways?: { label: string; verdict: string; line: Line | null; why: string }[];
  steps: { hook: string; stage: string; line: Line | null; reason: string; decides: boolean }[];
  sets: {
    set: string;
    address: string;
    in: boolean;
    element?: string;
    entries: Entry[];
    country?: string;
    'country-name'?: string;
    data?: string;
  }[];
  program: { agrees: boolean | null; says: string };
  cost: { ns: number; figures: string } | null;
}

export type Explained = Omit<Agent['Explained'], keyof Parts> & Parts;

/** "policy.yaml:28", without the folder. */
export function placed(line: Line): string {
  return `${line.file.split('/').at(-1)}:${line.line}`;
}
