"""The commands of `manage.py`.

commands  where Django finds them
"""
