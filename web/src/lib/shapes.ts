// The shapes of countries on a plane, computed once of the one file that has them.

import { geoNaturalEarth1, geoPath } from 'd3-geo';
import { feature } from 'topojson-client';
import type { GeometryCollection, Topology } from 'topojson-specification';
import shapesURL from 'world-atlas/countries-50m.json?url';
import { codeOf } from './countries';

export const width = 960;
export const height = 470;

/** One country, or a territory that has a code of its own. */
export interface Shape {
  code: string; // "" where nobody has given it one
  d: string; // of the path
  x: number; // of its middle
  y: number;
  small: boolean; // too small to be pointed at
}

let known: Promise<Shape[]> | undefined;

/** All shapes; it is loaded once. */
export function shapes(): Promise<Shape[]> {
  known ??= load().catch((error: unknown) => {
    known = undefined;
    throw error;
  });
  return known;
}

async function load(): Promise<Shape[]> {
  const answer = await fetch(shapesURL);
  if (!answer.ok) throw new Error('The shapes of the countries cannot be loaded.');
  const world = (await answer.json()) as Topology<{ countries: GeometryCollection<{ name: string }> }>;
  const all = feature(world, world.objects.countries);
  const path = geoPath(geoNaturalEarth1().fitSize([width, height], all)).digits(1);
  return all.features.map((f) => {
    const [[left, top], [right, bottom]] = path.bounds(f);
    const [x, y] = path.centroid(f);
    const code = f.id === undefined ? (f.properties.name === 'Kosovo' ? 'XK' : '') : codeOf(String(f.id));
    return { code: code ?? '', d: path(f) ?? '', x, y, small: Math.max(right - left, bottom - top) < 6 };
  });
}
