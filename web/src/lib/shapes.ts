// The shapes of countries on a plane, computed once of the one file that has them.

import { geoNaturalEarth1, geoPath } from 'd3-geo';
import { feature } from 'topojson-client';
import type { Geometry, MultiPolygon } from 'geojson';
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

// Parts of a shape that have codes of their own: of which, by the box that they lie in (west,
// south, east, north). Addresses there are not those of the country that the shape is of.
const apart: [of: string, code: string, box: [number, number, number, number]][] = [
  ['FR', 'GF', [-55, 2, -51, 6]],
  ['FR', 'GP', [-62, 15.8, -60.9, 16.6]],
  ['FR', 'MQ', [-61.3, 14.3, -60.7, 15]],
  ['FR', 'RE', [55, -21.5, 56, -20.8]],
  ['FR', 'YT', [45, -13.1, 45.4, -12.6]],
  ['NO', 'SJ', [-10, 70.6, -7, 72]],
  ['NO', 'SJ', [10, 74, 40, 82]],
  ['NL', 'BQ', [-69, 11.5, -62, 18]],
  ['AU', 'CX', [105, -11, 106, -10]],
  ['AU', 'CC', [96, -13, 97.5, -11]],
];

/** The features of the file by code, with what lies apart on its own. */
function split(code: string, geometry: Geometry): [string, Geometry][] {
  if (geometry.type !== 'MultiPolygon') return [[code, geometry]];
  const by = new Map<string, MultiPolygon>();
  for (const polygon of geometry.coordinates) {
    const [x = 0, y = 0] = polygon[0]?.[0] ?? [];
    const [, own = code] =
      apart.find(([of, , [w, s, e, n]]) => of === code && x >= w && x <= e && y >= s && y <= n) ?? [];
    const has = by.get(own) ?? { type: 'MultiPolygon', coordinates: [] };
    has.coordinates.push(polygon);
    by.set(own, has);
  }
  return [...by];
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
  return all.features
    .flatMap((f) => split(codeOfFeature(f.id, f.properties.name), f.geometry))
    .map(([code, geometry]) => {
      const [[left, top], [right, bottom]] = path.bounds(geometry);
      const [x, y] = path.centroid(geometry);
      return { code, d: path(geometry) ?? '', x, y, small: Math.max(right - left, bottom - top) < 6 };
    });
}

// Some have no number in the file.
const unnumbered: Record<string, string> = { Kosovo: 'XK', 'Indian Ocean Ter.': 'AU' };
function codeOfFeature(id: string | number | undefined, name: string): string {
  return (id === undefined ? unnumbered[name] : codeOf(String(id))) ?? '';
}
