// All pages: their addresses, and for which of the two servers they are. A path that ends with
// "/*" has a name of something in its place.

import type { Component } from 'svelte';
// The overviews and the hosts come with the page itself: what one sees first takes few requests.
import FleetOverview from './overview/Fleet.svelte';
import HostOverview from './overview/Host.svelte';
import Hosts from './hosts/Hosts.svelte';

export interface Page {
  path: string;
  title: string;
  link?: boolean; // in the head of the page
  only?: 'host' | 'fleet';
  load: () => Promise<{ default: Component }>;
}

export const pages: Page[] = [
  {
    path: '/',
    title: 'Overview',
    link: true,
    only: 'host',
    load: () => Promise.resolve({ default: HostOverview }),
  },
  {
    path: '/',
    title: 'Overview',
    link: true,
    only: 'fleet',
    load: () => Promise.resolve({ default: FleetOverview }),
  },
  {
    path: '/hosts',
    title: 'Hosts',
    link: true,
    only: 'fleet',
    load: () => Promise.resolve({ default: Hosts }),
  },
  { path: '/hosts/*', title: 'Host', only: 'fleet', load: () => import('./hosts/FleetHost.svelte') },
  { path: '/host', title: 'Host', link: true, only: 'host', load: () => import('./hosts/ThisHost.svelte') },
  { path: '/policy', title: 'Policy', link: true, load: () => import('./policy/Policy.svelte') },
  { path: '/map', title: 'Map', link: true, load: () => import('./map/Map.svelte') },
  { path: '/reach', title: 'Who reaches whom', link: true, load: () => import('./reach/Reach.svelte') },
  { path: '/ask', title: 'Ask', link: true, load: () => import('./ask/Ask.svelte') },
  { path: '/log', title: 'Log', link: true, load: () => import('./log/Log.svelte') },
  { path: '/bans', title: 'Bans', link: true, load: () => import('./bans/Bans.svelte') },
  {
    path: '/rollouts',
    title: 'Roll-outs',
    link: true,
    only: 'fleet',
    load: () => import('./rollouts/Rollouts.svelte'),
  },
  { path: '/rollouts/*', title: 'Roll-out', only: 'fleet', load: () => import('./rollouts/Rollout.svelte') },
  {
    path: '/lists',
    title: 'Lists',
    link: true,
    only: 'host',
    load: () => import('./lists/HostLists.svelte'),
  },
  {
    path: '/lists',
    title: 'Lists',
    link: true,
    only: 'fleet',
    load: () => import('./lists/FleetLists.svelte'),
  },
  { path: '/admin', title: 'Admin', link: true, only: 'fleet', load: () => import('./admin/Admin.svelte') },
];
